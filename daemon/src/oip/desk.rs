//! What is done for a call, however it came: its model, its stream, its request, and what the answer tells.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rt_core::Span;
use weir_client::{TensorInfo, wire::ResultHead};
use weir_engine::packed_len;
use weir_oip::http::VERSION;
use weir_oip::{ANONYMOUS, Answer, Call, Model, Parameter, Parameters, Refused, check_outputs, pack};
use weir_os::clock;
use weir_os::locks::lock;
use weir_plan::config::DaemonConfig;
use weir_serve::service::{Handed, Origin, Said, Service, unknown_class};

use super::asked::Asked;
use super::caller::{Caller, Waiting};
use super::reply::{Reply, Told};
use super::streams::{Declared, Streams, wrong};
use crate::local::pass;
use crate::overview::Overview;
use crate::socket::{DRAINING, Debts, Pause};

/// Where calls are dealt with.
pub(super) struct Desk {
    overview: Arc<Overview>,
    pub(super) debts: Arc<Debts>,
    streams: Streams,
    /// The thread's time when somebody was charged last.
    charged: Mutex<Span>,
}

/// A model by its name, and what it takes and gives.
#[derive(Debug)]
pub(super) struct Described {
    name: String,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
}

/// How the requests of a model have fared, those of the socket with them.
pub(super) struct Fared {
    pub(super) name: String,
    pub(super) served: u64,
    /// From their arrivals to the ends of their batches, in all.
    pub(super) served_ns: u64,
    /// Of that, to the starts of their batches.
    pub(super) waited_ns: u64,
    pub(super) missed: u64,
    pub(super) batches: u64,
}

/// An answer to a call.
#[derive(Debug)]
pub(super) struct Given {
    described: Described,
    id: String,
    parameters: Parameters,
    packed: Vec<u8>,
    outputs: Vec<(usize, bool)>,
}

impl Described {
    pub(super) fn model(&self) -> Model<'_> {
        Model { name: &self.name, inputs: &self.inputs, outputs: &self.outputs }
    }
}

impl Given {
    pub(super) fn answer(&self) -> Answer<'_> {
        Answer {
            model: self.described.model(),
            id: &self.id,
            parameters: &self.parameters,
            packed: &self.packed,
            outputs: &self.outputs,
        }
    }
}

impl Desk {
    pub(super) fn new(overview: &Arc<Overview>, debts: &Arc<Debts>) -> Self {
        let (overview, debts) = (Arc::clone(overview), Arc::clone(debts));
        Self { overview, debts, streams: Streams::default(), charged: Mutex::new(Span::ZERO) }
    }

    pub(super) fn config(&self) -> &DaemonConfig {
        &self.overview.config.daemon
    }

    /// Whether calls are taken in.
    pub(super) fn is_ready(&self) -> bool {
        !self.overview.served.is_draining()
    }

    /// Whether calls of this model are.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn is_model_ready(&self, name: &str, version: &str) -> Result<bool, Refused> {
        let (_, service) = self.service(name, version)?;
        let standing = service.latest().view().standing();
        let safe = standing.severity.is_suspended() || standing.demoted;
        Ok(self.is_ready() && (self.config().oip.ready_in_safe_mode || !safe))
    }

    /// Its state in the protocol's words.
    pub(super) fn state(&self, name: &str) -> &'static str {
        if self.is_model_ready(name, "").unwrap_or(false) { "READY" } else { "UNAVAILABLE" }
    }

    /// The names of all models, in the order of the configuration.
    pub(super) fn models(&self) -> Vec<String> {
        self.overview.served.services().iter().map(|service| service.name().to_owned()).collect()
    }

    /// What a model takes and gives.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn describe(&self, name: &str, version: &str) -> Result<Described, Refused> {
        self.service(name, version).map(|(_, service)| described(service.latest()))
    }

    /// How the requests of a model have fared.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn fared(&self, name: &str, version: &str) -> Result<Fared, Refused> {
        let (_, service) = self.service(name, version)?;
        let (totals, (latencies, batches)) = (service.latest().totals(), service.latest().meters_status());
        Ok(Fared {
            name: name.to_owned(),
            served: totals.served(),
            served_ns: latencies.sum,
            waited_ns: service.latest().waited_ns(),
            missed: totals.missed().values().sum(),
            batches: batches.counts.iter().sum(),
        })
    }

    /// Answers a call. One that came to nothing and was promised nothing is paid for by waiting.
    ///
    /// # Errors
    /// If it is wrong, or there is no answer in time.
    pub(super) async fn infer(
        &self,
        caller: &Caller,
        asked: Asked,
        call: &Call<'_>,
    ) -> Result<Given, Refused> {
        let served = async {
            let (index, service) = self.service(&asked.model, &asked.version)?;
            Ok((index, self.serve(caller, (service, asked), call).await?))
        };
        let (index, (outcome, vain)) = match served.await {
            Ok(served) => served,
            Err(refused) => (0, (Err(refused), Some(false))),
        };
        match vain {
            Some(promised) => self.charge(caller, index, promised).await,
            None => drop(self.note()),
        }
        outcome
    }

    /// Has a caller wait who has asked for what is no inference, or in vain, if it owes too much.
    pub(super) async fn charge(&self, caller: &Caller, service: usize, promised: bool) {
        let now = clock::now();
        if let Some(pause) = self.bill(caller, service, promised) {
            let _waiting = Waiting { caller, until: pause.until };
            pass(clock::duration(pause.until.since(now))).await;
            // What others did meanwhile is theirs.
            self.note();
        }
    }

    /// Puts down to a caller what was done last.
    pub(super) fn bill(&self, caller: &Caller, service: usize, promised: bool) -> Option<Pause> {
        caller.debt.charge(clock::now(), self.note(), service, promised)
    }

    /// How long somebody who is not let in yet is to wait, for what is owed.
    pub(super) fn wait(&self, caller: &Caller) -> Option<Span> {
        caller.debt.wait(clock::now())
    }

    /// Gives streams back that nobody uses.
    pub(super) fn release_unused(&self) {
        self.streams.release_unused(false);
    }

    /// Gives all streams back.
    pub(super) fn release_all(&self) {
        self.streams.release_unused(true);
    }

    /// The thread's time since the last time.
    fn note(&self) -> Span {
        let now = clock::thread_time();
        now.saturating_sub(std::mem::replace(&mut *lock(&self.charged), now))
    }

    /// The service of that name and its place.
    fn service(&self, name: &str, version: &str) -> Result<(usize, Arc<Service>), Refused> {
        let services = self.overview.served.services();
        let found = services.iter().enumerate().find(|(_, service)| service.name() == name);
        let Some((index, service)) = found else {
            let names: Vec<_> = services.iter().map(|service| service.name()).collect();
            return Err(Refused::NotFound(format!("no model {name}; there are: {}", names.join(", "))));
        };
        if !version.is_empty() && version != VERSION {
            return Err(Refused::NotFound(format!(
                "model {name} has version {VERSION} alone, not {version}"
            )));
        }
        Ok((index, Arc::clone(service)))
    }

    /// What comes of a call, and, if it was in vain, whether it was promised something.
    async fn serve(
        &self,
        caller: &Caller,
        (service, asked): (Arc<Service>, Asked),
        call: &Call<'_>,
    ) -> Result<(Result<Given, Refused>, Option<bool>), Refused> {
        let described = described(service.latest());
        let model = described.model();
        let outputs = check_outputs(&model, &call.outputs, asked.binary)?;
        weir_oip::http::check_json(&model, &outputs)?;
        let mut packed = Vec::new();
        pack(&model, call, &mut packed)?;
        if !self.is_ready() {
            return Err(unavailable(DRAINING));
        }
        let mut said = Said { within: asked.within(call)?, ..Said::default() };
        let class = asked.class(call)?;
        let name = asked.stream(call)?;
        if service.plan.spec.has_state() && name == ANONYMOUS {
            let text =
                format!("model {} remembers what came before: name a stream by weir_stream", asked.model);
            return Err(Refused::Invalid(text));
        }
        let declared = Declared::of(&name, &call.parameters)?;
        let last = match call.parameters.get("weir_last") {
            None => false,
            Some(Parameter::Bool(last)) => *last,
            Some(other) => return Err(wrong("weir_last", other, "must be true or false")),
        };
        let most = self.config().client_streams;
        // Once more if the service has ended and another one has its name.
        for _ in 0..2 {
            let of = (&*service, name.as_str());
            let held = self.streams.get(&self.overview, of, declared.clone(), most).await?;
            let (reply, told) = Reply::new(&caller.open);
            let (handed, promised) = {
                let (lease, effects) = &mut *lock(&held.lease);
                // Another model may have come while the stream was registered; none does while it is held.
                if packed_len(lease.service().plan.spec.request()) != packed.len() {
                    return Err(unavailable("the model has changed meanwhile"));
                }
                if let Some(class) = &class {
                    said.class =
                        lease.classes.told(class).filter(|told| lease.classes.find(Some(*told)).is_some());
                    if said.class.is_none() {
                        let text = unknown_class(&lease.service().plan.config, &format!("{class:?}"));
                        return Err(Refused::Invalid(format!("weir_class: {text}")));
                    }
                }
                let full = caller.open.load(Ordering::Relaxed) >= self.config().client_requests;
                let refused = match full && lease.spec.demand().is_none() {
                    true => Some(lease.refuse(effects, said)),
                    false => lease.refuse_in_vain(effects, said, packed.len()),
                };
                let handed = refused.unwrap_or_else(|| {
                    let unpromised = (!lease.promised).then_some(packed.len());
                    let mut origin = Origin::new(Arc::clone(&reply) as _, 1, 1, None).unpromised(unpromised);
                    (origin.tells_skipped, origin.tells_late) = (true, true);
                    lease.hand_in(effects, (origin, said), |slot| slot.extend_from_slice(&packed))
                });
                (handed, lease.promised)
            };
            let (told, refused) = match handed {
                Handed::Ending => {
                    self.streams.forget(service.name(), &name);
                    continue;
                }
                Handed::Refused(refused) => (refused.map(Told::missed), true),
                Handed::TakenIn => (told.await.ok(), false),
            };
            if last {
                self.streams.release(service.name(), &name);
            }
            // Without a word its stream has gone.
            let told = told.ok_or_else(|| unavailable("its stream was given up"))?;
            let vain = (refused || reply.is_in_vain()).then_some(promised);
            return Ok((self.given(told, described, (call, outputs), &service), vain));
        }
        Err(unavailable("the service has ended"))
    }

    /// What is answered.
    fn given(
        &self,
        told: Told,
        described: Described,
        (call, outputs): (&Call<'_>, Vec<(usize, bool)>),
        service: &Service,
    ) -> Result<Given, Refused> {
        match told {
            Told::Result { head, packed } => {
                let parameters = parameters(&head, service.latest());
                Ok(Given { described, id: call.id.clone(), parameters, packed, outputs })
            }
            Told::Miss { misses_left, sequence, reason } => {
                let text = format!("no answer in time to request {sequence}: {reason}");
                Err(Refused::Unavailable { text, misses_left })
            }
        }
    }
}

fn described(service: &Service) -> Described {
    let spec = &service.plan.spec;
    let tensors = |list: &[weir_engine::TensorSpec]| list.iter().map(weir_engine::TensorSpec::info).collect();
    Described {
        name: service.name().to_owned(),
        inputs: tensors(spec.request()),
        outputs: tensors(spec.answer()),
    }
}

/// What an answer tells of itself.
fn parameters(head: &ResultHead, service: &Service) -> Parameters {
    let number = |value: u64| Parameter::Int(i64::try_from(value).unwrap_or(i64::MAX));
    let mut parameters = Parameters::from([
        ("weir_sequence".to_owned(), number(head.sequence)),
        ("weir_queued_ns".to_owned(), number(head.queued_ns)),
        ("weir_run_ns".to_owned(), number(head.run_ns)),
        ("weir_batch".to_owned(), number(head.batch.into())),
    ]);
    if let Some(left) = head.misses_left {
        parameters.insert("weir_misses_left".to_owned(), number(left.into()));
    }
    if head.late {
        parameters.insert("weir_late".to_owned(), Parameter::Bool(true));
    }
    if head.skipped > 0 {
        parameters.insert("weir_skipped".to_owned(), number(head.skipped.into()));
    }
    let variants = &service.plan.variants;
    if let Some(variant) = variants.get(usize::from(head.variant)).filter(|_| variants.len() > 1) {
        parameters.insert("weir_variant".to_owned(), Parameter::Text(variant.spec.name.clone()));
    }
    parameters
}

fn unavailable(text: &str) -> Refused {
    Refused::Unavailable { text: text.to_owned(), misses_left: None }
}
