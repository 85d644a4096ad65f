//! Simulates requests of one stream on one worker: `requests COUNT BATCH LOAD`, for counting instructions.
use planner::Problem;
use rt_core::{Instant, Transition};
use sim::{Batch, Observer, Order, PolicyKind, Request};

struct Count(u64);
impl Observer for Count {
    fn request(&mut self, request: &Request) {
        self.0 += u64::from(request.outcome == rt_core::Outcome::Served);
    }
    fn batch(&mut self, _: &Batch) {}
    fn safe_mode(&mut self, _: Instant, _: Transition) {}
}

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().expect("a number")).collect();
    let &[count, batch, load] = &arguments[..] else { panic!("COUNT BATCH LOAD%") };
    let text = format!(
        r#"{{"unit":"us","deadline":20000,"workers":[{{"count":1,"batch":{batch},"time":10000}}],
        "streams":[{{"name":"s","constraints":["any_miss(1,2)"],"arrivals":{{"windows":[[{},10000]]}}}}],"background":true}}"#,
        2 * batch
    );
    let problem = Problem::parse(&text).expect("valid");
    let gap = 10_000_000 * 100 / (batch * 2 * load);
    let start = std::time::Instant::now();
    let mut served = Count(0);
    let arrivals = (0..count).map(|i| (Instant::from_nanos(i * gap), 0));
    PolicyKind::Weir
        .play(&problem, (256, 1), arrivals, Order::Together, |_, _, b| b, &mut served)
        .expect("a run");
    let took = start.elapsed();
    println!("{} served of {count}, {:.2} M/s", served.0, count as f64 / took.as_secs_f64() / 1e6);
}
