//! What a client says and is told, over the socket and in shared memory, be it hostile or not.

mod arena;
mod balancer;
mod classes;
mod clients;
mod fleeting;
mod hostile;
mod oip;
mod quotas;
mod registering;
mod secure;
mod steady;
mod unusual;
