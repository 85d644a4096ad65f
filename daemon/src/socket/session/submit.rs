//! A request on its way from a frame to its service.

use std::sync::Arc;

use rt_core::{MissReason, Span};
use weir_client::RefusalCode;
use weir_client::wire::{CLASS_VERSION, DaemonFrame, RESULT_HEAD_LEN, WITHIN_VERSION};

use super::debt;
use super::{DRAINING, Session};
use weir_engine::packed_len;
use weir_os::clock;
use weir_serve::service::{Handed, Origin, Region, Said, wire_reason};

/// The stream of a request, and what it says of itself.
type From = (u32, Said);

impl Session<'_> {
    pub(super) fn submit(&mut self, id: u64, from @ (stream, _): From, payload: &[u8]) {
        let Some(lease) = self.leases.get_mut(&stream) else { return self.refuse_stream(id, stream) };
        let spec = &lease.service().plan.spec;
        let (expected, output) = (packed_len(spec.request()), packed_len(spec.answer()));
        if payload.len() != expected {
            let text = format!("payload of {} bytes, the inputs have {expected}", payload.len());
            return self.refuse(id, RefusalCode::InputLength, &text);
        }
        let (answer, limit) = (RESULT_HEAD_LEN + output, self.front.overview.config.daemon.max_frame);
        if answer > limit as usize {
            let text = format!("an answer takes {answer} bytes, daemon.max-frame = {limit}: share an arena");
            return self.refuse(id, RefusalCode::OutputLength, &text);
        }
        self.enqueue(id, from, None, (expected, |input: &mut Vec<u8>| input.extend_from_slice(payload)));
    }

    pub(super) fn submit_shared(&mut self, id: u64, from @ (stream, _): From, (input, output): (u64, u64)) {
        let Some(lease) = self.leases.get_mut(&stream) else { return self.refuse_stream(id, stream) };
        let Some(arena) = &self.arena else {
            return self.refuse(id, RefusalCode::ArenaPlace, "no arena was shared on this connection");
        };
        let spec = &lease.service().plan.spec;
        let expected = packed_len(spec.request());
        let input = arena.place("input", input, expected);
        let output = arena.place("output", output, packed_len(spec.answer()));
        match (input, output) {
            // Copied now, once: what the client writes there later is none of this request's business.
            (Ok(input), Ok(output)) => {
                self.enqueue(id, from, Some(output), (expected, |slot: &mut Vec<u8>| input.read(slot)));
            }
            (Err(text), _) | (_, Err(text)) => self.refuse(id, RefusalCode::ArenaPlace, &text),
        }
    }

    /// Hands a request to its service; `fill` lays its tensors, so many bytes, in an empty slot.
    fn enqueue(
        &mut self,
        id: u64,
        (stream, said): From,
        output: Option<Region>,
        (bytes, fill): (usize, impl FnOnce(&mut Vec<u8>)),
    ) {
        let Some(lease) = self.leases.get_mut(&stream) else { return self.refuse_stream(id, stream) };
        if let Some(ahead) =
            said.sent.map(|sent| sent.since(clock::now())).filter(|&ahead| ahead > Span::ZERO)
        {
            let text = format!("it was sent {ahead} from now, by CLOCK_MONOTONIC of this machine");
            return self.refuse(id, RefusalCode::SentInFuture, &text);
        }
        // Whoever has taken over may have other ones.
        lease.service();
        if let Some(class) = said.class.filter(|class| lease.classes.find(Some(*class)).is_none()) {
            let service = lease.service().clone();
            let text = lease.classes.lacks(&service.plan.config, class);
            return self.refuse(id, RefusalCode::UnknownClass, &text);
        }
        if self.front.overview.served.is_draining() {
            return self.refuse(id, RefusalCode::Draining, DRAINING);
        }
        // What is promised an answer is bounded by what its stream declared: a refusal would break the promise.
        let most = self.front.overview.config.daemon.client_requests;
        let full = self.connection.open_requests() >= most && lease.spec.demand().is_none();
        let refused = match full {
            true => Some(lease.refuse(&mut self.effects, said)),
            false => lease.refuse_in_vain(&mut self.effects, said, bytes),
        };
        let handed = refused.unwrap_or_else(|| {
            let unpromised = (!lease.promised).then_some(self.length.max(bytes));
            let mut origin =
                Origin::new(Arc::clone(self.connection) as _, id, stream, output).unpromised(unpromised);
            origin.tells_skipped = self.version >= Some(WITHIN_VERSION);
            origin.tells_late = self.version >= Some(CLASS_VERSION);
            lease.hand_in(&mut self.effects, (origin, said), fill)
        });
        match handed {
            Handed::TakenIn => {}
            Handed::Refused(refused) => self.missed(id, stream, refused),
            Handed::Ending => self.refuse(id, RefusalCode::Draining, DRAINING),
        }
    }

    /// Answers a request that was refused with these misses left, this number and this reason.
    fn missed(&mut self, id: u64, stream: u32, refused: Option<(Option<u32>, u64, MissReason)>) {
        if self.leases.get(&stream).is_none_or(|lease| !lease.promised) {
            self.connection.owe(debt::of_frame(self.length));
        }
        if let Some((misses_left, sequence, reason)) = refused {
            let reason = wire_reason(reason);
            self.reply(id, &DaemonFrame::Miss { stream, misses_left, sequence, reason });
        }
    }
}
