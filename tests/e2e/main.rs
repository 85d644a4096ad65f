//! The daemon from outside, as users, operators and hostile clients meet it: one binary, a folder for each matter.

mod harness;

mod command_line;
mod engines;
mod notifications;
mod packaging;
mod promise;
mod protocol;
mod reload;
