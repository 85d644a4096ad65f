//! What reading in vain costs a client: time in which nothing of its is read, so that no flood takes more than a small
//! part of a core from those who are promised something.
//!
//! What is read in vain is put down to the *process* that connected: more connections have no more of it, and who connects
//! anew still owes what it did. Processes that owe too much share that part of the core; and where many processes together owe
//! much, all who read in vain wait for it.
//!
//! While too much is owed, one of those that flood a service is read at a time: its *turn*. What a socket holds is then dealt with
//! at once, and what comes after it is read while it can still be answered; if all were read, all would have waited for too long.
//! The others wait meanwhile, and little of them is read, for each reads something before it is charged.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rt_core::{Instant, Span};

use super::peer::may_connect;
use super::quota::Quota;
use weir_os::pi_mutex::PiMutex;
use weir_plan::config::Allowed;

/// What it takes to read a frame that comes to nothing, and to say so.
const FRAME: Span = Span::from_nanos(2_000);
/// So many bytes of it take a nanosecond more.
const BYTES_PER_NS: u64 = 4;
/// For each nanosecond of that so many must pass: reading in vain takes a tenth of a core.
const FACTOR: u64 = 10;
/// So much may be owed before nothing more is read: bursts are no flood.
const CREDIT: Span = Span::from_millis(20);
/// To so much it must have fallen before anything is read again: what has piled up meanwhile is then read at once.
const RESUME: Span = Span::from_millis(10);
/// The longest pause: who shares its process with a flood is answered all the same, if slowly; …
const LONGEST: Span = Span::from_millis(1_000);
/// … and more slowly where so many connections wait for theirs that this would take more than a tenth of a core.
const EACH: Span = Span::from_millis(10);
/// So much may all together owe: where many processes flood, each by its credit, who reads in vain waits for all of them.
const CROWD: Span = Span::from_millis(200);
/// So long one of them has its turn, if another waits for it: first it is read what was too old when it got it, …
const TURN: Span = Span::from_millis(6_000);
/// … and not that long if it has read nothing in vain for so long after it might have.
const IDLE: Span = Span::from_millis(100);
/// Bytes that are read at a time of a connection that has not been charged yet though too much is owed, …
const CHUNK: usize = 1_024;
/// … and of one that is read only because its pause has been the longest, and has no turn.
const LEAST: usize = 64;
/// Connections of a process within a second, and at once.
const CONNECTIONS: usize = 250;
/// Other machines of which something is known at a time: one more is not let in.
const MACHINES: usize = 1_024;

/// What it takes to read a frame of so many bytes that comes to nothing.
pub(super) fn of_frame(bytes: usize) -> Span {
    FRAME + Span::from_nanos(bytes as u64 / BYTES_PER_NS)
}

/// Who connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// As the kernel says: a user and a process.
    Process(u32, i32),
    /// By an address, of which what a network gives to one machine counts: the first half, with IPv6.
    Machine(u64),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Process(0, 0) => f.write_str("of this machine"),
            Self::Process(user, process) => write!(f, "process {process} of user {user}"),
            Self::Machine(address) => match u32::try_from(address) {
                Ok(address) => write!(f, "at {}", Ipv4Addr::from(address)),
                Err(_) => write!(f, "at {}/64", Ipv6Addr::from(u128::from(address) << 64)),
            },
        }
    }
}

impl Default for Peer {
    fn default() -> Self {
        Self::Process(0, 0)
    }
}

impl Peer {
    /// Another machine; of all of this one that come through a port, the same.
    pub(crate) fn at(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_loopback() => Self::default(),
            IpAddr::V4(address) => Self::Machine(address.to_bits().into()),
            IpAddr::V6(address) => Self::Machine((address.to_bits() >> 64) as u64),
        }
    }

    /// The other end of a socket; of all whom nothing is known of, the same.
    pub(crate) fn of(socket: &impl AsFd) -> Self {
        getsockopt(socket, PeerCredentials)
            .map(|peer| Self::Process(peer.uid(), peer.pid()))
            .unwrap_or_default()
    }

    /// Whether whoever is at the other end of a socket is on the list of those who may connect, if there is one.
    pub(crate) fn may_connect(socket: &impl AsFd, allowed: Option<&Allowed>) -> bool {
        may_connect(socket, allowed).0
    }
}

/// What all who are connected owe, and who owed something when it went.
#[derive(Default)]
pub(crate) struct Debts {
    books: PiMutex<Books>,
    /// As in the books, for who does not wait for them: when all of all accounts will be paid, in nanoseconds.
    paid: AtomicU64,
    /// Connections so far.
    ever: AtomicU64,
}

#[derive(Default)]
struct Books {
    accounts: Vec<Account>,
    /// When all of all of them would be paid.
    paid: Instant,
    turns: Vec<Turn>,
}

/// That one connection of those that flood a service is read.
struct Turn {
    service: usize,
    connection: u64,
    /// From when on another one takes it, and from when on nobody has it.
    ends: Instant,
    lapses: Instant,
}

struct Account {
    peer: Peer,
    /// Its connections that are open.
    open: usize,
    /// When all will be paid, and the same for who does not wait for the books.
    paid: Instant,
    told: Arc<AtomicU64>,
    connections: Quota,
}

/// Whether a connection that owes too much has the turn of its service, which then is its own until some time after it may be
/// read next.
fn has_turn(turns: &mut Vec<Turn>, now: Instant, (service, connection): (usize, u64), next: Instant) -> bool {
    turns.retain(|turn| {
        now < turn.lapses && (turn.service != service || turn.connection == connection || now < turn.ends)
    });
    let lapses = next + IDLE;
    match turns.iter_mut().find(|turn| turn.service == service) {
        Some(turn) if turn.connection == connection => turn.lapses = lapses,
        Some(_) => return false,
        None => turns.push(Turn { service, connection, ends: now + TURN, lapses }),
    }
    true
}

impl Debts {
    /// One more connection of a process; `None` if it connects too often.
    pub(crate) fn connect(self: &Arc<Self>, now: Instant, peer: Peer) -> Option<Debt> {
        let accounts = &mut self.books.lock().accounts;
        accounts.retain(|account| {
            account.open > 0
                || account.paid > now
                || account.connections.spent() > now
                || account.peer == peer
        });
        let known = accounts.iter().position(|account| account.peer == peer);
        let is_machine = |peer: &Peer| matches!(peer, Peer::Machine(_));
        if known.is_none()
            && is_machine(&peer)
            && accounts.iter().filter(|account| is_machine(&account.peer)).count() >= MACHINES
        {
            return None;
        }
        let index = known.unwrap_or_else(|| {
            let connections = Quota::new(CONNECTIONS);
            accounts.push(Account { peer, open: 0, paid: Instant::ZERO, told: Arc::default(), connections });
            accounts.len() - 1
        });
        let account = &mut accounts[index];
        account.connections.take(now).then(|| {
            account.open += 1;
            let connection = self.ever.fetch_add(1, Ordering::Relaxed);
            Debt { debts: Arc::clone(self), peer, connection, paid: Arc::clone(&account.told) }
        })
    }

    /// `look` at the account of a process, at those of others, at when all of all would be paid, and at the turns.
    fn with<T>(
        &self,
        peer: Peer,
        look: impl FnOnce(&mut Account, &[Account], &mut Instant, &mut Vec<Turn>) -> T,
    ) -> Option<T> {
        let Books { accounts, paid, turns } = &mut *self.books.lock();
        let index = accounts.iter().position(|account| account.peer == peer)?;
        // First, so that the others are a slice.
        accounts.swap(0, index);
        accounts.split_first_mut().map(|(account, others)| look(account, others, paid, turns))
    }
}

/// What the process of one connection owes.
pub(crate) struct Debt {
    debts: Arc<Debts>,
    peer: Peer,
    /// Its number.
    connection: u64,
    /// When its process will have paid, in nanoseconds.
    paid: Arc<AtomicU64>,
}

/// Too much is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// Until then nothing is to be read.
    pub(crate) until: Instant,
    /// When all will be paid.
    pub(crate) paid: Instant,
    /// How much is to be read then.
    pub(crate) then: Portion,
}

/// How much of a connection is to be read at a time while too much is owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Portion {
    /// All there is: it has its turn.
    Whole,
    /// A part: it has not been charged yet, or it waits for what others owe.
    #[default]
    Part,
    /// Hardly anything: its pause was the longest, and should have been longer, or it has not its turn.
    Least,
}

impl Debt {
    /// How many bytes are to be read at a time of a connection that can be made to wait, and was told this portion last.
    pub(super) fn at_a_time(&self, now: impl FnOnce() -> Instant, portion: Portion) -> usize {
        let told = |paid: &AtomicU64| Instant::from_nanos(paid.load(Ordering::Relaxed));
        let (own, all) = (told(&self.paid), told(&self.debts.paid));
        if portion == Portion::Whole || own.max(all) == Instant::ZERO {
            return usize::MAX;
        }
        let now = now();
        let owing = own > now + RESUME || all > now + CROWD;
        match portion {
            // Nor in the instant at which whoever has the turn is about to be read.
            Portion::Least if owing || own > now => LEAST,
            _ if owing => CHUNK,
            _ => usize::MAX,
        }
    }

    /// How long whoever has not been let in yet is to wait, if too much is owed.
    pub(crate) fn wait(&self, now: Instant) -> Option<Span> {
        let told = |paid: &AtomicU64| Instant::from_nanos(paid.load(Ordering::Relaxed));
        let (own, all) = (told(&self.paid), told(&self.debts.paid));
        let own = (own > now + CREDIT).then(|| own - RESUME);
        let all = (all > now + CROWD).then(|| all - CROWD);
        own.max(all).map(|until| until.since(now).min(LONGEST))
    }

    /// Frames for a `service` were read in vain, which took so long. Who is `promised` something does not wait for what others
    /// owe.
    pub(crate) fn charge(&self, now: Instant, took: Span, service: usize, promised: bool) -> Option<Pause> {
        let charged = self.debts.with(self.peer, |account, others, all, turns| {
            let owe = |paid: Instant| paid > now + CREDIT;
            let owing = others.iter().filter(|other| owe(other.paid));
            let (processes, connections) =
                owing.fold((0, 0), |(processes, open), other| (processes + 1, open + other.open as u64));
            // Who has a turn has it of all processes.
            let has_it = |turn: &Turn| (turn.service, turn.connection) == (service, self.connection);
            let alone = promised || turns.iter().any(|turn| has_it(turn) && now < turn.lapses);
            let shared = if alone { 1 } else { processes + 1 };
            let price = Span::from_nanos(took.as_nanos().saturating_mul(FACTOR));
            *all = (*all).max(now) + price;
            account.paid = account.paid.max(now) + Span::from_nanos(price.as_nanos().saturating_mul(shared));
            for (told, paid) in [(&self.debts.paid, *all), (&account.told, account.paid)] {
                told.store(paid.as_nanos(), Ordering::Relaxed);
            }
            let longest =
                Span::from_nanos(EACH.as_nanos() * (connections + account.open as u64)).max(LONGEST);
            let crowd = !promised && *all > now + CROWD;
            let paid = account.paid;
            if !owe(paid) && !crowd {
                return None;
            }
            let wanted = if crowd { (paid - RESUME).max(*all - CROWD) } else { paid - RESUME };
            let (until, latest) = (wanted.min(now + longest), now + longest);
            let turns_matter = !promised && owe(paid);
            let (until, then) = match turns_matter {
                true if has_turn(turns, now, (service, self.connection), until) => (until, Portion::Whole),
                true => (latest, Portion::Least),
                false if until < wanted => (until, Portion::Least),
                false => (until, Portion::Part),
            };
            Some(Pause { until, paid: paid.max(until), then })
        });
        charged.flatten()
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        self.debts.with(self.peer, |account, _, _, turns| {
            account.open -= 1;
            turns.retain(|turn| turn.connection != self.connection);
        });
    }
}

#[cfg(test)]
mod tests;
