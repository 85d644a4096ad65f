//! Streams with their clients on a device: what each sends within its declaration, and when that is read.

use rt_core::sharing::SharingError;
use rt_core::{StreamId, StreamSpec};

use super::{Run, admission, spec};
use crate::harness::Dice;
use crate::oracle::sharing::{Service, Shared};

/// A system that is admitted with batches of strangers that are longer than any of its own, and its margin.
pub(crate) fn roomy(dice: &mut Dice, turns: bool, late: u8) -> (Shared, u64) {
    loop {
        let mut shared = Shared::draw(dice, turns, late);
        shared.longest += dice.within(0, 2) as u8;
        for service in &mut shared.services {
            service.turn = dice.within(1, 3) as u8;
            service.deadline += dice.within(0, 4) as u8;
        }
        if let Some(margin) = margin(&shared) {
            return (shared, margin);
        }
    }
}

/// The same with stalls of one to four ticks, as rare as they must be.
pub(crate) fn stalling(dice: &mut Dice, turns: bool, late: u8) -> (Shared, u64) {
    loop {
        let (mut shared, _) = roomy(dice, turns, late);
        shared.stall = dice.within(1, 4) as u8;
        shared.services.iter_mut().for_each(|service| service.deadline += shared.stall);
        shared.window = u64::from(shared.stall) + 1;
        let Err(SharingError::Stalls { needed, .. }) = admission(&shared) else { continue };
        shared.window = needed.as_nanos();
        if let Some(margin) = margin(&shared) {
            return (shared, margin);
        }
    }
}

/// By how much batches may run over, if the system is admitted and something is promised.
pub(crate) fn margin(shared: &Shared) -> Option<u64> {
    let binding = admission(shared).ok()?.binding?;
    Some(u64::try_from(binding.margin()).expect("admitted"))
}

/// A stream with its client.
pub(crate) struct Client {
    pub(crate) service: usize,
    pub(crate) spec: StreamSpec,
    pub(crate) id: Option<StreamId>,
    /// When it sent, as far as its registration goes back.
    pub(crate) history: Vec<u64>,
    /// What is sent and not read, and when it is read.
    pub(crate) unread: Vec<(u64, u64)>,
}

impl Client {
    /// It sends now what is read up to `late` later.
    pub(crate) fn send(&mut self, now: u64, late: u64, dice: &mut Dice) {
        self.history.push(now);
        let before = self.unread.last().map_or(0, |&(_, read)| read);
        self.unread.push((now, before.max(now + dice.within(0, late))));
    }

    /// It comes back, if its former self counts no more and nothing is in its way.
    pub(crate) fn come_back(&mut self, run: &mut Run, shared: &Shared) {
        if has_place(run, shared, self) {
            self.history.clear();
            self.unread.clear();
            self.id = run.try_add(self.service, self.spec.clone());
        }
    }
}

/// A client for each stream that the system declares, and of each service a stream that declares nothing.
pub(crate) fn senders(shared: &Shared, run: &mut Run) -> (Vec<Client>, Vec<StreamId>) {
    let of = |(service, s): (usize, &Service)| {
        let client = |k| Client { service, spec: spec(k), id: None, history: Vec::new(), unread: Vec::new() };
        s.streams.iter().map(client).collect::<Vec<_>>()
    };
    let mut clients: Vec<Client> = shared.services.iter().enumerate().flat_map(of).collect();
    clients.iter_mut().for_each(|c| c.id = Some(run.add(c.service, c.spec.clone())));
    let strangers = (0..shared.services.len()).map(|s| run.add(s, StreamSpec::best_effort())).collect();
    (clients, strangers)
}

/// Whether a client that left may come back: its former self counts no more.
pub(crate) fn has_place(run: &Run, shared: &Shared, client: &Client) -> bool {
    let load = run.device.service(client.service).load();
    let there = load.specs().filter(|other| other.demand() == client.spec.demand()).count();
    let declared = &shared.services[client.service].streams;
    there < declared.iter().filter(|k| spec(k).demand() == client.spec.demand()).count()
}

/// Reads what is to be read by now: either the client said when it sent that, or it came then and is taken in late.
pub(crate) fn read(run: &mut Run, client: &mut Client, dice: &mut Dice) {
    while let (Some(id), Some(&(sent, _))) =
        (client.id, client.unread.first().filter(|&&(_, read)| read <= run.now))
    {
        client.unread.remove(0);
        let at = if dice.within(0, 1) == 0 { sent } else { run.now };
        run.arrive_at(client.service, id, sent, at);
        run.settle();
    }
}
