//! Virtual time: drives the scheduler of the daemon with arrivals that are given or generated.
#![forbid(unsafe_code)]
