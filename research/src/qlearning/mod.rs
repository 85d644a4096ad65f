//! Double Q-learning (van Hasselt et al., 2016) by a small network: what both a router and a selector of variants are trained with.

mod brain;
mod replay;

pub(crate) use brain::Brain;
pub(crate) use replay::Replay;
