//! How many requests a second are simulated on one core: arrivals drawn, scheduled, served and measured.

mod requests;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use requests::experiment;

/// Requests of a run.
const REQUESTS: u64 = 100_000;

fn simulate(c: &mut Criterion) {
    for process in ["constant", "poisson"] {
        let mut group = c.benchmark_group(process);
        group.throughput(Throughput::Elements(REQUESTS));
        for batch in [1, 4, 16] {
            let experiment = experiment(process, batch, REQUESTS);
            group.bench_function(BenchmarkId::new("batch", batch), |b| {
                b.iter(|| experiment.run(&|| {}).expect("a run"));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, simulate);
criterion_main!(benches);
