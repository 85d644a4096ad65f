//! Who is measured, and beside whom: the workers of a configuration as they will run at once.

use std::cmp::Reverse;

use serde::Serialize;

use super::Profile;
use crate::config::Config;
use crate::models::{Running, Staging, Timed, running};
use weir_engine::{Backend, EngineKind, Equipment, Isolation, ModelSpec, SimulatedTime, sha256_hex};

/// Everything that is measured for a configuration.
#[derive(Debug, Clone)]
pub struct Work {
    /// The models; services that share one on the same engine share its times.
    pub subjects: Vec<Subject>,
    /// Measured one after the other; each subject has slots in one of them only.
    pub groups: Vec<MeasurementGroup>,
    /// Whether workers have real-time priority where permitted.
    pub realtime: bool,
}

/// A model on an engine.
#[derive(Debug, Clone)]
pub struct Subject {
    /// What the profile has an entry of.
    pub timed: Timed,
    /// The model.
    pub spec: ModelSpec,
    /// What is done beside it.
    pub staging: Option<Staging>,
    /// What runs it.
    pub engine: EngineKind,
    /// With what options.
    pub backend: Backend,
    /// And where.
    pub isolation: Isolation,
    /// The times that a simulated engine waits out; empty for others.
    pub times: Vec<SimulatedTime>,
    /// The largest batch that any service wants of it.
    pub max_batch: usize,
}

/// Workers that run at the same time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasurementGroup {
    /// At least one.
    pub slots: Vec<WorkerSlot>,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerSlot {
    /// The service whose it is, or the device.
    pub service: String,
    /// Which of its workers.
    pub worker: usize,
    /// Where it runs; anywhere if absent.
    pub core: Option<usize>,
    /// The indices of the subjects that it loads, and their largest batches; they take turns.
    pub jobs: Vec<(usize, usize)>,
}

impl Work {
    /// The work for `config`, whose services have the variants `specs`: all workers in one group or, if `alone`, each
    /// subject in a group of its own with the first worker that has it. Simulated services are always alone, for they
    /// occupy no core.
    pub fn new(config: &Config, specs: &[Vec<ModelSpec>], alone: bool) -> Self {
        Self::of(config, specs, alone, |_, _| true)
    }

    /// The same for the models that are `wanted` on their engine alone, with the workers that have them.
    pub fn of(
        config: &Config,
        specs: &[Vec<ModelSpec>],
        alone: bool,
        wanted: impl Fn(&Timed, EngineKind) -> bool,
    ) -> Self {
        let mut work = Self { subjects: Vec::new(), groups: Vec::new(), realtime: config.daemon.realtime };
        let mut beside = MeasurementGroup { slots: Vec::new() };
        // The first worker that has the subject at its largest batch measures it alone.
        let mut lone: Vec<Option<(usize, Reverse<usize>, WorkerSlot)>> = Vec::new();
        // Of each device that services share: what its workers load, the models taking turns as the batches will.
        let mut shared: Vec<Vec<(usize, usize)>> = vec![Vec::new(); config.devices.len()];
        for (order, runs) in running(config, specs).enumerate() {
            let (service, name) = (runs.config, runs.name());
            let specs = runs.specs.iter().map(|spec| (runs.timed(spec), spec)).enumerate();
            let specs = specs.filter(|(_, (timed, _))| wanted(timed, service.engine));
            let jobs: Vec<(usize, usize)> = specs.map(|(v, spec)| work.job(&runs, v, spec)).collect();
            lone.resize(work.subjects.len(), None);
            for &(subject, batch) in &jobs {
                let slot = WorkerSlot {
                    service: name.clone(),
                    worker: 0,
                    core: service.cores.first().copied(),
                    jobs: vec![(subject, batch)],
                };
                let place = &mut lone[subject];
                if place.as_ref().is_none_or(|old| (old.0, old.1) < (batch, Reverse(order))) {
                    *place = Some((batch, Reverse(order), slot));
                }
            }
            if alone || service.engine == EngineKind::Simulated || jobs.is_empty() {
                continue;
            }
            if let Some(share) = service.share {
                for &(subject, batch) in &jobs {
                    let all = &mut shared[share.device];
                    match all.iter_mut().find(|(there, _)| *there == subject) {
                        Some((_, most)) => *most = batch.max(*most),
                        None => all.push((subject, batch)),
                    }
                }
            } else {
                beside.slots.extend((0..service.workers).map(|id| WorkerSlot {
                    service: name.clone(),
                    worker: id,
                    core: (!service.cores.is_empty()).then(|| service.cores[id % service.cores.len()]),
                    jobs: jobs.clone(),
                }));
            }
        }
        for (device, jobs) in config.devices.iter().zip(shared).filter(|(_, jobs)| !jobs.is_empty()) {
            beside.slots.extend((0..device.workers).map(|id| WorkerSlot {
                service: device.name.clone(),
                worker: id,
                core: (!device.cores.is_empty()).then(|| device.cores[id % device.cores.len()]),
                jobs: jobs.clone(),
            }));
        }
        for (subject, place) in lone.into_iter().enumerate() {
            let simulated = work.subjects[subject].engine == EngineKind::Simulated;
            if (alone || simulated)
                && let Some((.., slot)) = place
            {
                work.groups.push(MeasurementGroup { slots: vec![slot] });
            }
        }
        if !beside.slots.is_empty() {
            work.groups.push(beside);
        }
        work
    }

    /// Workers that run beside and with a subject.
    pub fn workers_beside(&self, subject: usize) -> usize {
        let of = |group: &&MeasurementGroup| group.subjects().contains(&subject);
        self.groups.iter().find(of).map_or(1, |group| group.slots.len())
    }

    /// What is to be said of a profile that was taken of other numbers of workers at once than `config` has, whose
    /// services have the variants `specs`; models that are not profiled are left out.
    pub fn other_company(config: &Config, specs: &[Vec<ModelSpec>], profile: &Profile) -> Vec<String> {
        let work = Self::new(config, specs, false);
        let subjects = work.subjects.iter().enumerate();
        let lines = subjects.filter_map(|(index, Subject { timed, engine, .. })| {
            let entry = profile.timed(timed, *engine).ok()?;
            entry.other_company(work.workers_beside(index))
        });
        lines.collect()
    }

    /// The equipment of its subjects, in their order.
    pub fn equipment(&self) -> Vec<Equipment> {
        self.subjects.iter().map(|subject| Equipment::current(&subject.backend)).collect()
    }

    /// SHA-256 of all that times depend on but the machine and the equipment, in hexadecimal.
    pub fn digest(&self) -> String {
        let subjects: Vec<_> = self
            .subjects
            .iter()
            .map(|s| (&s.timed.name, &s.timed.identity, &s.backend, s.isolation, s.max_batch))
            .collect();
        sha256_hex(&serde_json::to_vec(&(subjects, &self.groups, self.realtime)).unwrap_or_default())
    }

    /// The job of `spec`, variant `variant` of `service`.
    fn job(
        &mut self,
        runs: &Running<'_>,
        variant: usize,
        (timed, spec): (Timed, &ModelSpec),
    ) -> (usize, usize) {
        let service = runs.config;
        let times = service.model.simulated_times(variant).unwrap_or_default();
        // A simulated engine has no times for larger batches.
        let most = if times.is_empty() { usize::MAX } else { times.len() };
        let max_batch = service.max_batch.min(most);
        let same = |s: &Subject| (&s.timed.name, s.engine) == (&timed.name, service.engine);
        let index = self.subjects.iter().position(same).unwrap_or_else(|| {
            let (spec, engine, isolation) = (spec.clone(), service.engine, service.isolation);
            let (backend, times) = (service.backend(0).clone(), times.to_vec());
            let staging = runs.staging.clone();
            self.subjects.push(Subject {
                timed,
                spec,
                staging,
                engine,
                backend,
                isolation,
                times,
                max_batch,
            });
            self.subjects.len() - 1
        });
        let subject = &mut self.subjects[index];
        subject.max_batch = subject.max_batch.max(max_batch);
        (index, max_batch)
    }
}

impl MeasurementGroup {
    /// Whom it measures, in order.
    pub fn subjects(&self) -> Vec<usize> {
        let mut subjects: Vec<usize> =
            self.slots.iter().flat_map(|slot| &slot.jobs).map(|&(subject, _)| subject).collect();
        subjects.sort_unstable();
        subjects.dedup();
        subjects
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::models::resolve_models;
    use weir_engine::{DataType, TensorSpec};

    /// A simulated model.
    pub(crate) fn subject(name: &str, times_ns: &[u64]) -> Subject {
        let tensor = |name: &str| TensorSpec::new(name, DataType::F32, &[2]);
        let spec = ModelSpec {
            name: name.to_owned(),
            path: "toy.onnx".into(),
            sha256: "aa".to_owned(),
            inputs: vec![tensor("in")],
            outputs: vec![tensor("out")],
            accuracy: 1.0,
            accuracy_by_class: Vec::new(),
            constants: Vec::new(),
            states: Vec::new(),
            external: Vec::new(),
        };
        let (engine, max_batch) = (EngineKind::Simulated, times_ns.len());
        let (backend, isolation) = (Backend { kind: engine, ..Backend::TRACT }, Isolation::Thread);
        let times = times_ns.iter().map(|&time| SimulatedTime::always(time)).collect();
        let timed = Timed::of(&spec, None);
        Subject { timed, spec, staging: None, engine, backend, isolation, times, max_batch }
    }

    fn config(services: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/manifest.toml");
        let text = format!("[daemon]\nmodels = {models:?}\nrealtime = false\n{services}");
        let path = folder.path().join("weir.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path).unwrap()
    }

    fn work(services: &str, alone: bool) -> Work {
        let config = config(services);
        Work::new(&config, &resolve_models(&config).unwrap(), alone)
    }

    fn work_of(services: &str, wanted: impl Fn(&Timed, EngineKind) -> bool) -> Work {
        let config = config(services);
        Work::of(&config, &resolve_models(&config).unwrap(), false, wanted)
    }

    const THREE: &str = r#"
        [[service]]
        name = "a"
        model = "digits-s"
        variants = ["digits-m"]
        deadline = "1s"
        workers = 3
        cores = [1, 0]
        max-batch = 2
        [[service]]
        name = "b"
        model = "digits-m"
        deadline = "1s"
        max-batch = 4
        [[service]]
        name = "c"
        engine = "simulated"
        simulated = { times = ["1ms", "2ms", "3ms"], input = 1, output = 1 }
        deadline = "1s"
        max-batch = 2
    "#;

    #[test]
    fn all_workers_but_simulated_ones_run_at_once() {
        let work = work(THREE, false);
        let names: Vec<_> = work.subjects.iter().map(|s| (s.spec.name.as_str(), s.max_batch)).collect();
        assert_eq!(names[..2], [("digits-s", 2), ("digits-m", 4)]);
        assert_eq!((work.subjects[2].engine, names[2].1), (EngineKind::Simulated, 2));
        let [simulated, beside] = &work.groups[..] else { panic!("{:?}", work.groups) };
        assert_eq!((simulated.slots.len(), simulated.subjects()), (1, vec![2]));
        let cores: Vec<_> = beside.slots.iter().map(|slot| (slot.service.as_str(), slot.core)).collect();
        assert_eq!(cores, [("a", Some(1)), ("a", Some(0)), ("a", Some(1)), ("b", None)]);
        assert_eq!(beside.slots[0].jobs, [(0, 2), (1, 2)]);
        assert_eq!(beside.slots[3].jobs, [(1, 4)]);
        assert_eq!([0, 1, 2].map(|subject| work.workers_beside(subject)), [4, 4, 1]);
    }

    #[test]
    fn alone_each_model_has_the_first_worker_that_wants_most_of_it() {
        let work = work(THREE, true);
        let slots: Vec<_> = work.groups.iter().map(|group| &group.slots[..]).collect();
        let [[s], [m], [_]] = slots[..] else { panic!("{slots:?}") };
        assert_eq!((s.service.as_str(), s.core, &s.jobs[..]), ("a", Some(1), &[(0, 2)][..]));
        assert_eq!((m.service.as_str(), m.core, &m.jobs[..]), ("b", None, &[(1, 4)][..]));
    }

    #[test]
    fn of_the_wanted_ones_only_their_workers_and_the_largest_batch_of_all_services() {
        let work = work_of(THREE, |timed, _| timed.name == "digits-m");
        let names: Vec<_> = work.subjects.iter().map(|s| (s.spec.name.as_str(), s.max_batch)).collect();
        assert_eq!(names, [("digits-m", 4)]);
        let jobs: Vec<_> =
            work.groups.iter().flat_map(|group| &group.slots).map(|slot| &slot.jobs[..]).collect();
        assert_eq!(jobs, [&[(0, 2)][..], &[(0, 2)], &[(0, 2)], &[(0, 4)]]);
        assert!(work_of(THREE, |_, _| false).groups.is_empty());
    }

    #[test]
    fn the_digest_is_that_of_what_is_measured() {
        let base = work(THREE, false).digest();
        assert_eq!(base, work(&THREE.replace("deadline = \"1s\"", "deadline = \"2s\""), false).digest());
        assert_ne!(base, work(THREE, true).digest());
        for (from, to) in [("cores = [1, 0]", "cores = [0, 1]"), ("max-batch = 4", "max-batch = 3")] {
            assert_ne!(base, work(&THREE.replace(from, to), false).digest());
        }
    }
}
