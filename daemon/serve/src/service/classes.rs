//! Classes of requests: what a client calls them, which they are after a takeover, and what came of the requests of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt_core::{MAX_CLASSES, Span};
use weir_client::RefusalCode;
use weir_client::status;
use weir_plan::config::{RequestClass, ServiceConfig};
use weir_plan::plan::ServicePlan;

use super::registry::{Refusal, refuse};

/// The classes of a service as a client was told them with its stream, and which these are now.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    /// The names, in the order of the numbers that its requests have.
    told: Arc<[String]>,
    /// The one that it asked for when it registered, or was told that its requests are of; none of a stream that is reserved, of
    /// which the configuration says it.
    asked: Option<Arc<str>>,
    /// What numbers they have now; none of what is no more.
    now: [Option<u8>; MAX_CLASSES],
    /// That of requests that name none.
    own: u8,
}

impl Classes {
    /// Of a stream that is given out now; its requests are of the class `asked` for unless they say otherwise.
    ///
    /// # Errors
    /// If there is no such class.
    pub(super) fn of(config: &ServiceConfig, stream: &str, asked: Option<&str>) -> Result<Self, Refusal> {
        if let Some(name) = asked.filter(|name| config.class_number(name).is_none()) {
            return Err(refuse(RefusalCode::UnknownClass, unknown(config, &format!("{name:?}"))));
        }
        let is_reserved = config.reserved.iter().any(|reserved| reserved.name == stream);
        let first = config.classes.first().filter(|_| !is_reserved).map(|class| &*class.name);
        let asked = asked.or(first);
        let told = config.classes.iter().map(|class| class.name.clone()).collect();
        let mut classes = Self { told, asked: asked.map(Into::into), ..Self::default() };
        classes.follow(config, stream);
        Ok(classes)
    }

    /// A service of this configuration has taken over.
    pub(super) fn follow(&mut self, config: &ServiceConfig, stream: &str) {
        self.now = [None; MAX_CLASSES];
        for (now, name) in self.now.iter_mut().zip(&*self.told) {
            *now = config.class_number(name);
        }
        let reserved = || config.reserved.iter().find(|reserved| reserved.name == stream);
        let asked = self.asked.as_ref().and_then(|name| config.class_number(name));
        self.own = asked.unwrap_or_else(|| reserved().map_or(0, |reserved| reserved.class));
    }

    /// The class of requests that name none, by its number now.
    pub fn own(&self) -> u8 {
        self.own
    }

    /// The class that a request names by the number it was told, by its number now; its stream's own if it names none. None if
    /// there is no such class, or no more.
    pub fn find(&self, told: Option<u8>) -> Option<u8> {
        told.map_or(Some(self.own), |told| self.now.get(usize::from(told)).copied().flatten())
    }

    /// Why a request that names a class by this number cannot have it.
    pub fn lacks(&self, config: &ServiceConfig, told: u8) -> String {
        match self.told.get(usize::from(told)) {
            Some(gone) => unknown(config, &format!("{gone:?} any more")),
            None => unknown(config, &told.to_string()),
        }
    }

    /// The number of that name, as it was told.
    pub fn told(&self, name: &str) -> Option<u8> {
        self.told.iter().position(|told| told == name).map(|told| told as u8)
    }
}

/// Why there is no class called or numbered so.
pub fn unknown(config: &ServiceConfig, class: &str) -> String {
    let names: Vec<_> = config.classes.iter().map(|class| &*class.name).collect();
    match names.is_empty() {
        true => format!("service {} has no classes", config.name),
        false => format!("service {} has no class {class}; there are: {}", config.name, names.join(", ")),
    }
}

/// What came of the requests of a class, since the daemon's start.
#[derive(Debug, Default)]
pub(super) struct ClassCounts {
    answered: AtomicU64,
    late: AtomicU64,
    missed: AtomicU64,
    /// Of all answers, as the bits of a number.
    worth: AtomicU64,
}

/// The same of all classes of a service, those of whom it takes over from among them.
#[derive(Debug, Default)]
pub(super) struct ByClass(Vec<(Arc<str>, Arc<ClassCounts>)>);

impl ByClass {
    pub(super) fn new(plan: &ServicePlan) -> Self {
        Self(plan.config.classes.iter().map(|class| (class.name.as_str().into(), Arc::default())).collect())
    }

    /// What has the name of one of `before` goes on with its counts.
    pub(super) fn continue_from(&mut self, before: &Self) {
        for (name, counts) in &mut self.0 {
            if let Some((_, known)) = before.0.iter().find(|(known, _)| known == name) {
                *counts = Arc::clone(known);
            }
        }
    }

    /// The name of a class, if there is such.
    pub(super) fn name(&self, class: u8) -> Option<&Arc<str>> {
        self.0.get(usize::from(class)).map(|(name, _)| name)
    }

    /// A request of this class was missed.
    pub(super) fn missed(&self, class: u8) {
        if let Some((_, counts)) = self.0.get(usize::from(class)) {
            counts.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One was answered after `took`, where it may take `due`, by an answer that in time is worth so much. Whether that is late.
    pub(super) fn answered(
        &self,
        (class, number): (&RequestClass, u8),
        (took, due): (Span, Span),
        in_time: f64,
    ) -> bool {
        let late = took > due;
        if let Some((_, counts)) = self.0.get(usize::from(number)) {
            counts.answered.fetch_add(1, Ordering::Relaxed);
            counts.late.fetch_add(u64::from(late), Ordering::Relaxed);
            let worth = in_time * class.decay.part_of(took, due);
            let add = |bits| Some((f64::from_bits(bits) + worth).to_bits());
            let _ = counts.worth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
        late
    }

    pub(super) fn status(&self, config: &ServiceConfig) -> Vec<status::Class> {
        let told = |(class, (_, counts)): (&RequestClass, &(Arc<str>, Arc<ClassCounts>))| {
            let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
            let (answered, missed) = (count(&counts.answered), count(&counts.missed));
            let requests = answered + missed;
            let worth = f64::from_bits(count(&counts.worth));
            status::Class {
                name: class.name.clone(),
                share: class.share,
                deadline_ns: class.deadline.as_nanos(),
                reach_ns: class.reach.as_nanos(),
                value: class.value,
                requests,
                answered,
                late: count(&counts.late),
                missed,
                worth: (requests > 0).then(|| worth / requests as f64),
            }
        };
        config.classes.iter().zip(&self.0).map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plan::config::Config;

    fn config(names: &[&str], own: &str) -> ServiceConfig {
        let classes: String =
            names.iter().map(|name| format!("[[service.class]]\nname = \"{name}\"\n")).collect();
        let text = format!(
            "[[service]]\nname = \"s\"\nengine = \"simulated\"\nsimulated = {{ times = [\"1ms\"] }}\ndeadline = \"50ms\"\n\
             {classes}[[service.stream]]\nname = \"cam\"\nclass = \"{own}\"\n"
        );
        Config::parse("test.toml".as_ref(), &text).expect("good").services.remove(0)
    }

    #[test]
    fn numbers_keep_their_meaning_when_another_configuration_takes_over() {
        let before = config(&["clean", "noisy", "torn"], "noisy");
        let mut told = Classes::of(&before, "cam", None).expect("as reserved");
        let mut asked = Classes::of(&before, "cam", Some("torn")).expect("a class");
        let mut first = Classes::of(&before, "any", None).expect("the first");
        assert_eq!([told.own(), asked.own(), first.own()], [1, 2, 0]);
        assert_eq!(
            [None, Some(0), Some(2), Some(3)].map(|class| told.find(class)),
            [Some(1), Some(0), Some(2), None]
        );
        assert_eq!([told.told("torn"), told.told("new")], [Some(2), None]);
        let after = config(&["torn", "new", "clean"], "new");
        told.follow(&after, "cam");
        asked.follow(&after, "cam");
        first.follow(&after, "any");
        assert_eq!([told.own(), asked.own(), first.own()], [1, 0, 2]);
        assert_eq!([Some(0), Some(1), Some(2)].map(|class| told.find(class)), [Some(2), None, Some(0)]);
        let refusal = Classes::of(&after, "cam", Some("noisy")).expect_err("no more");
        assert_eq!(refusal.code, RefusalCode::UnknownClass);
        assert_eq!(refusal.text, "service s has no class \"noisy\"; there are: torn, new, clean");
        let lacks = |class| told.lacks(&after, class);
        assert_eq!(lacks(1), "service s has no class \"noisy\" any more; there are: torn, new, clean");
        assert_eq!(lacks(3), "service s has no class 3; there are: torn, new, clean");
    }
}
