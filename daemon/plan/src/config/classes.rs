//! Classes of a service's requests: what an answer to each is worth, and how long that lasts.

use std::collections::HashSet;

use rt_core::{Decay, MAX_CLASSES, MAX_WORTH, Span};
use weir_engine::ModelSpec;

use super::check::{Check, Refused, all};
use super::{ServiceConfig, raw};

/// A class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestClass {
    pub name: String,
    /// The part of all requests that is expected to be of it; of all classes together 1.
    pub share: f64,
    /// The share of right answers, in 0..=1, of the models for which it is another than of all requests.
    pub accuracy: Vec<(String, f64)>,
    /// From arrival to answer, at most the service's: from then on an answer is late.
    pub deadline: Span,
    /// How long an answer takes at most that is delivered: until it is worth nothing, at most the service's deadline.
    pub reach: Span,
    /// What a right answer in time counts: above 0.
    pub value: f64,
    /// What is left of that where it is late.
    pub decay: Decay,
}

impl RequestClass {
    /// What an answer of `model` in time is worth: its value times the share of right answers as it is stated here, or else as
    /// the manifest tells it for a class of this name, or of all requests; it counts as 1 where nobody knows it.
    #[must_use]
    pub fn worth(&self, model: &ModelSpec) -> f64 {
        let own = self.accuracy.iter().find(|(name, _)| *name == model.name);
        let measured = || model.accuracy_of(&self.name).unwrap_or(model.accuracy);
        let accuracy = own.map_or_else(measured, |(_, accuracy)| *accuracy);
        self.value * if accuracy.is_nan() { 1.0 } else { accuracy }
    }
}

impl ServiceConfig {
    /// The number of a class.
    #[must_use]
    pub fn class_number(&self, name: &str) -> Option<u8> {
        self.classes.iter().position(|class| class.name == name).map(|class| class as u8)
    }

    /// From when on an answer to a request of that class is late, and how long it takes at most that is delivered, if its client
    /// wants it `within` that time: then that is its deadline where it is sooner.
    #[must_use]
    pub fn terms(&self, class: u8, within: Option<Span>) -> (Span, Span) {
        let Some(class) = self.classes.get(usize::from(class)) else {
            let own = within.map_or(self.deadline, |within| within.min(self.deadline));
            return (own, own);
        };
        match within.filter(|within| *within < class.deadline) {
            Some(within) => (within, class.decay.reach(within).min(self.deadline)),
            None => (class.deadline, class.reach),
        }
    }
}

/// Classes of `services` whose answers may all be late while nothing is told to be wrong, each in a line: dispatch may come as late
/// as the guard, of services that share a device the smallest of theirs.
pub fn tight_classes(services: &[&ServiceConfig]) -> Vec<String> {
    let of = |service: &&ServiceConfig| {
        let beside =
            services.iter().filter(|other| service.share.is_some_and(|share| other.is_on(share.device)));
        let guard = beside.map(|other| other.guard).min().unwrap_or(service.guard);
        let classes = service.classes.iter().enumerate();
        let tight = classes.filter(move |(_, class)| class.deadline <= guard).map(move |(i, class)| {
            let (field, name) = (format!("{}.class[{i}].deadline", service.at), &class.name);
            format!(
                "{field} = {}: is not above the guard, {guard}: where dispatch comes as late as that, of which no safe mode tells, \
                 each answer to a request of class {name} is late",
                class.deadline
            )
        });
        tight.collect::<Vec<_>>()
    };
    services.iter().flat_map(of).collect()
}

impl Check<'_> {
    /// The classes of a service, in whose `deadline` all of them are answered.
    pub(super) fn request_classes(
        &self,
        at: &str,
        raw: Vec<raw::RequestClass>,
        deadline: Option<Span>,
    ) -> Result<Vec<RequestClass>, Refused> {
        let count = self.number(&format!("{at}.class (how many)"), raw.len() as u64, 0, MAX_CLASSES as u64);
        let mut names = HashSet::new();
        let one = |(i, raw)| self.request_class(&format!("{at}.class[{i}]"), raw, deadline, &mut names);
        let mut classes = all(raw.into_iter().enumerate().map(one))?;
        count?;
        let whole: f64 = classes.iter().map(|class| class.share).sum();
        classes.iter_mut().for_each(|class| class.share /= whole);
        Ok(classes)
    }

    fn request_class(
        &self,
        at: &str,
        raw: raw::RequestClass,
        service: Option<Span>,
        names: &mut HashSet<String>,
    ) -> Result<RequestClass, Refused> {
        let field = |name: &str| format!("{at}.{name}");
        let name = self.name(&field("name"), raw.name, names);
        let positive = |name: &str, value: f64| match value > 0.0 && value <= MAX_WORTH {
            true => Ok(value),
            false => {
                let reason = format!("must be above 0, and at most {MAX_WORTH}");
                Err(self.refuse(&field(name), &value.to_string(), reason))
            }
        };
        let (share, value) = (positive("share", raw.share), positive("value", raw.value));
        let accuracy = all(raw.accuracy.into_iter().map(|(model, accuracy)| {
            let in_range = self.real(&format!("{at}.accuracy.{model}"), accuracy, (0.0, 1.0));
            Ok((model, in_range?))
        }));
        let deadline = match &raw.deadline {
            None => service.ok_or(Refused),
            Some(stated) => {
                let own = self.span(&field("deadline"), stated, Span::from_nanos(1));
                service.ok_or(Refused).and_then(|service| match own? {
                    own if own <= service => Ok(own),
                    _ => {
                        let reason = format!("must be at most that of the service, {service}");
                        Err(self.refuse(&field("deadline"), stated, reason))
                    }
                })
            }
        };
        let decay = match raw.decay.check() {
            Ok(()) => Ok(raw.decay),
            Err(wrong) => {
                let range = format!("must be in {}..={}", wrong.min, wrong.max);
                let wrong_field = format!("{at}.decay ({})", wrong.field);
                Err(self.refuse(&wrong_field, &wrong.value.to_string(), range))
            }
        };
        let (deadline, decay) = (deadline?, decay?);
        let reach = decay.reach(deadline).min(service.ok_or(Refused)?);
        let (name, share, accuracy, value) = (name?, share?, accuracy?, value?);
        Ok(RequestClass { name, share, accuracy, deadline, reach, value, decay })
    }

    /// The number of the class that a field names.
    pub(super) fn class_named(
        &self,
        field: &str,
        name: Option<&str>,
        classes: &[RequestClass],
    ) -> Result<u8, Refused> {
        let Some(name) = name else { return Ok(0) };
        match classes.iter().position(|class| class.name == name) {
            Some(class) => Ok(class as u8),
            None => {
                let names: Vec<_> = classes.iter().map(|class| format!("{:?}", class.name)).collect();
                let reason = match names.is_empty() {
                    true => "the service has no classes: remove it, or add a [[service.class]]".to_owned(),
                    false => format!("must be one of the service's classes, {}", names.join(", ")),
                };
                Err(self.refuse(field, &format!("{name:?}"), reason))
            }
        }
    }
}

#[cfg(test)]
mod tests;
