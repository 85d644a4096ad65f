//! A request on its way from a frame to its service.

use std::sync::Arc;

use rt_core::Span;
use weir_client::wire::{DaemonFrame, RESULT_HEAD_LEN, WITHIN_VERSION};
use weir_client::{MissReason, RefusalCode};

use super::{DRAINING, Session};
use weir_engine::packed_len;
use weir_os::clock;
use weir_serve::service::{Closed, Origin, Region, Said};

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
        self.enqueue(id, from, None, |input| input.extend_from_slice(payload));
    }

    pub(super) fn submit_shared(&mut self, id: u64, from @ (stream, _): From, (input, output): (u64, u64)) {
        let Some(lease) = self.leases.get_mut(&stream) else { return self.refuse_stream(id, stream) };
        let Some(arena) = &self.arena else {
            return self.refuse(id, RefusalCode::ArenaPlace, "no arena was shared on this connection");
        };
        let spec = &lease.service().plan.spec;
        let input = arena.place("input", input, packed_len(spec.request()));
        let output = arena.place("output", output, packed_len(spec.answer()));
        match (input, output) {
            // Copied now, once: what the client writes there later is none of this request's business.
            (Ok(input), Ok(output)) => self.enqueue(id, from, Some(output), |slot| input.read(slot)),
            (Err(text), _) | (_, Err(text)) => self.refuse(id, RefusalCode::ArenaPlace, &text),
        }
    }

    /// Hands a request to its service; `fill` lays its tensors in an empty slot.
    fn enqueue(
        &mut self,
        id: u64,
        (stream, said): From,
        output: Option<Region>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(lease) = self.leases.get_mut(&stream) else { return self.refuse_stream(id, stream) };
        if let Some(ahead) =
            said.sent.map(|sent| sent.since(clock::now())).filter(|&ahead| ahead > Span::ZERO)
        {
            let text = format!("it was sent {ahead} from now, by CLOCK_MONOTONIC of this machine");
            return self.refuse(id, RefusalCode::SentInFuture, &text);
        }
        if self.front.overview.served.is_draining() {
            return self.refuse(id, RefusalCode::Draining, DRAINING);
        }
        // What is promised an answer is bounded by what its stream declared: a refusal would break the promise.
        let most = self.front.overview.config.daemon.client_requests;
        if self.connection.open_requests() >= most && lease.spec.demand().is_none() {
            let service = Arc::clone(lease.service());
            let refused = service.refuse(&mut self.effects, lease, said);
            return self.queue_full(id, stream, refused);
        }
        let mut origin = Origin::new(Arc::clone(self.connection) as _, id, stream, output);
        origin.tells_skipped = self.version >= Some(WITHIN_VERSION);
        let mut fresh = Some((fill, origin));
        let mut moved = None;
        loop {
            let service = Arc::clone(lease.service());
            // Slots can run out only while answers to earlier requests are still being written.
            let Some(token) = service.slots.take() else {
                let refused = service.refuse(&mut self.effects, lease, said);
                return self.queue_full(id, stream, refused);
            };
            {
                let mut slot = service.slots.get(token);
                if let Some(content) = moved.take() {
                    *slot = content;
                } else if let Some((fill, origin)) = fresh.take() {
                    slot.input.clear();
                    fill(&mut slot.input);
                    slot.origin = Some(origin);
                }
                slot.memory = service.plan.spec.has_state().then(|| Arc::clone(&lease.memory));
            }
            let Err(closed) = service.submit(&mut self.effects, lease, token, said) else { return };
            moved = Some(std::mem::take(&mut *service.slots.get(token)));
            service.slots.put_back(token);
            // Else another one has taken over just now.
            if closed == Closed::Ending {
                return self.refuse(id, RefusalCode::Draining, DRAINING);
            }
        }
    }

    /// Answers a request that was refused with these misses left and this number.
    fn queue_full(&mut self, id: u64, stream: u32, refused: Option<(Option<u32>, u64)>) {
        if let Some((misses_left, sequence)) = refused {
            let reason = MissReason::QueueFull;
            self.reply(id, &DaemonFrame::Miss { stream, misses_left, sequence, reason });
        }
    }
}
