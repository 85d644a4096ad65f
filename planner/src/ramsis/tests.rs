//! Policies against the authors' own, and against what is counted one by one.

mod references;
