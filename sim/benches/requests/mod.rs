//! What is measured: one run of one stream on one worker, under the daemon's scheduler.

use sim::experiment::{Data, Experiment};

/// `requests` requests that come as `process` says, as experiments write it, at the certified rate of `any_miss(1,2)`, twice what the worker serves; batches of up to
/// `batch`.
pub(crate) fn experiment(process: &str, batch: usize, requests: u64) -> Experiment {
    let text = format!(
        "title = \"\"\nrequests = {requests}\npolicies = [\"weir\"]\n\
         [[system]]\nname = \"one\"\ndeadline = \"20ms\"\nstreams = [{{ constraints = [\"any_miss(1,2)\"] }}]\n\
         workers = [{{ batch = {batch}, time = \"10ms\" }}]\n\
         [[arrivals]]\nname = \"all\"\nprocess = \"{process}\"\n[x]\nload = [1.0]\n"
    );
    Experiment::parse(&text, &Data::default()).expect("an experiment")
}
