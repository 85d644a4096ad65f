//! What runs the models: engines, worker processes, the shipped models.

mod choice;
mod isolation;
mod models;
