//! Who is told what the daemon announces: clients, the hook, the bus, the log, metrics.

mod alarm;
mod bus;
mod bus_follows;
mod events;
mod hook_and_log;
mod metrics;
