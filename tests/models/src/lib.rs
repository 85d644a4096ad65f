//! Parts of the daemon by themselves: what must hold in every order of threads is tried in all of them by loom, with
//! every value that the memory model lets a read return, and memory that is reached by its address is tried under Miri.
#![allow(dead_code, reason = "each part is tried, and used elsewhere")]

#[path = "../../../daemon/serve/src/service/latch.rs"]
mod latch;

#[path = "../../../daemon/engine/src/engine/memory.rs"]
mod memory;

#[cfg(all(test, loom))]
mod orders {
    use loom::sync::Arc;
    use loom::thread;

    use crate::latch::Latch;

    /// Writes up to `writes` into both words, one after the other, while another thread reads twice, and then reads here.
    fn read_beside(writes: u64, preemptions: Option<usize>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let latch = Arc::new(Latch::new([0; 2]));
            let other = Arc::clone(&latch);
            let reader = thread::spawn(move || {
                let mut last = 0;
                for _ in 0..2 {
                    let words = other.read();
                    assert!(words[0] == words[1] && words[0] >= last, "{words:?} after {last}");
                    last = words[0];
                }
            });
            (1..=writes).for_each(|n| latch.write([n; 2]));
            reader.join().expect("it holds");
            assert_eq!(latch.read(), [writes; 2]);
        });
    }

    #[test]
    fn what_is_read_beside_a_write_is_of_one_write_and_never_older_than_before() {
        read_beside(1, None);
    }

    /// In all orders in which a thread is put off its core twice at most.
    #[test]
    fn so_it_is_beside_two_writes() {
        read_beside(2, Some(2));
    }
}
