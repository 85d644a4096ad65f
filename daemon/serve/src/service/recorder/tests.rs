//! Tests of the recorder: what is written of what was noted.

use super::*;

/// What is written of notes that are taken in bunches, each fetched before the next.
fn written(limit: u64, room: usize, bunches: &[&[(u64, &str)]]) -> String {
    let config = RecordConfig { path: "arrivals.csv".into(), limit };
    let (notes, shared, mut writer) = open("service s".into(), &config, Vec::new(), room);
    let origin = writer.origin;
    writer.head();
    for bunch in bunches {
        for &(at, stream) in *bunch {
            take_down(&notes, &shared, origin + Span::from_nanos(at), (&stream.into(), None), None);
        }
        while !writer.fetch() {}
    }
    writer.finish();
    let text = String::from_utf8(writer.out).expect("UTF-8");
    text.split_once("time,stream\n").expect("a head").1.to_owned()
}

#[test]
fn arrivals_are_written_in_order_with_their_names() {
    let text = written(10, 10, &[&[(5, "front"), (5, "rear/0")], &[], &[(70, "a \"b\", c")]]);
    assert_eq!(text, "5,front\n5,rear/0\n70,\"a \"\"b\"\", c\"\n");
}

#[test]
fn where_there_are_classes_that_of_each_request_is_written() {
    let config = RecordConfig { path: "a".into(), limit: 9 };
    let (notes, shared, mut writer) = open("service s".into(), &config, Vec::new(), 20);
    let stream: Arc<str> = "cam".into();
    for class in [Some("clean"), None, Some("a, b")] {
        let class = class.map(Arc::from);
        take_down(&notes, &shared, writer.origin, (&stream, class.as_ref()), None);
    }
    writer.finish();
    assert_eq!(String::from_utf8_lossy(&writer.out), "0,cam,clean\n0,cam\n0,cam,\"a, b\"\n");
}

#[test]
fn what_finds_no_room_is_counted_where_it_is_missing() {
    let bunches: [&[_]; 3] = [&[(0, "a"), (1, "a"), (2, "a"), (3, "b")], &[(4, "a")], &[(5, "b")]];
    assert_eq!(written(10, 2, &bunches), "0,a\n1,a\n# 2 arrivals not recorded\n4,a\n5,b\n");
    // The next note has a place, and takes the count along.
    let (notes, shared, mut writer) =
        open("service s".into(), &RecordConfig { path: "a".into(), limit: 9 }, Vec::new(), 1);
    let origin = writer.origin;
    take_down(&notes, &shared, origin, (&"a".into(), None), None);
    take_down(&notes, &shared, origin, (&"b".into(), None), None);
    assert!(writer.notes.try_recv().is_ok());
    take_down(&notes, &shared, origin, (&"c".into(), None), None);
    take_down(&notes, &shared, origin, (&"d".into(), None), None);
    // As much as there is room for is fetched at a time, and in the end all.
    assert!(!writer.fetch());
    assert_eq!(writer.out, b"# 1 arrivals not recorded\n0,c\n");
    writer.finish();
    assert_eq!(writer.out, b"# 1 arrivals not recorded\n0,c\n# 1 arrivals not recorded\n");
}

#[test]
fn a_file_does_not_outgrow_its_limit_and_says_what_is_missing() {
    let text = written(2, 10, &[&[(0, "a"), (1, "a")], &[(2, "a"), (3, "a")], &[(4, "a")]]);
    let end = "# record-limit = 2 is reached: what follows is not recorded\n# 3 arrivals not recorded\n";
    assert_eq!(text, format!("0,a\n1,a\n{end}"));
}

#[test]
fn a_file_goes_on_where_its_limit_is_raised() {
    let (notes, shared, mut writer) =
        open("service s".into(), &RecordConfig { path: "a".into(), limit: 1 }, Vec::new(), 10);
    for at in 0..4 {
        take_down(&notes, &shared, writer.origin + Span::from_nanos(at), (&"a".into(), None), None);
        writer.fetch();
        if at == 2 {
            shared.limit.store(9, Ordering::Relaxed);
        }
    }
    let full = "# record-limit = 1 is reached: what follows is not recorded\n";
    assert_eq!(String::from_utf8_lossy(&writer.out), format!("0,a\n{full}# 2 arrivals not recorded\n3,a\n"));
}

#[test]
fn a_file_that_takes_no_more_ends_the_recording_alone() {
    struct Nothing;
    impl Write for Nothing {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let config = RecordConfig { path: "a".into(), limit: 9 };
    let (notes, shared, mut writer) = open("service s".into(), &config, Nothing, 10);
    writer.head();
    take_down(&notes, &shared, writer.origin, (&"a".into(), None), None);
    writer.fetch();
    assert!(writer.is_broken() && writer.untold == 1);
}

/// What the scheduler did stands behind `#`, where a reader of arrivals leaves it out.
#[test]
fn starts_and_ends_are_written_among_the_arrivals() {
    let config = RecordConfig { path: "a".into(), limit: 3 };
    let (notes, shared, mut writer) = open("service s".into(), &config, Vec::new(), 8);
    let origin = writer.origin;
    let at = move |t| origin + Span::from_nanos(t);
    let recorder = Recorder { notes, shared, writer: std::thread::current() };
    let (front, rear): (Arc<str>, Arc<str>) = ("front".into(), "rear, left".into());
    recorder.arrival(at(0), (&front, None), Some((0, 7)));
    recorder.arrival(at(1), (&rear, None), Some((1, 7)));
    recorder.start_of(at(1), (None, 0), Span::from_nanos(30), [(0, 7), (1, 7)].into_iter());
    let end_of = |t, worker| recorder.end_of(at(t), (None, worker));
    end_of(20, 0);
    // The token is used anew, and by another service of the device at once.
    recorder.arrival(at(21), (&front, None), Some((0, 7)));
    while !writer.fetch() {}
    recorder.start_of(at(21), (None, 1), Span::from_nanos(9), [(0, 7)].into_iter());
    // No room is left, and then nothing of it can be followed any more.
    (0..7).for_each(|t| end_of(30 + t, 1));
    while !writer.fetch() {}
    let text = String::from_utf8(writer.out.clone()).expect("UTF-8");
    let batches =
        "0,front\n1,\"rear, left\"\n# take,front,0\n# take,\"rear, left\",0\n# start,1,0,30\n# end,20,0\n";
    let after = "21,front\n# take,front,1\n# start,21,1,9\n";
    let ends: String = (0..6).map(|t| format!("# end,{},1\n", 30 + t)).collect();
    assert_eq!(text, format!("{batches}{after}{ends}# 1 starts and ends of batches not recorded\n"));
    // Beyond the limit of arrivals there is no end without its start.
    recorder.arrival(at(50), (&rear, None), Some((1, 1)));
    end_of(51, 1);
    writer.finish();
    let text = String::from_utf8(writer.out).expect("UTF-8");
    let end = "# record-limit = 3 is reached: what follows is not recorded\n# 1 arrivals not recorded\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn of_a_pipeline_it_is_written_what_results_became_at_which_stage() {
    let config = RecordConfig { path: "a".into(), limit: 9 };
    let (notes, shared, mut writer) = open("service s".into(), &config, Vec::new(), 20);
    let origin = writer.origin;
    let at = move |t| origin + Span::from_nanos(t);
    let recorder = Recorder { notes, shared, writer: std::thread::current() };
    let [cam, detect, read] = ["cam", "detect", "read"].map(Arc::<str>::from);
    recorder.arrival(at(0), (&cam, None), Some((0, 3)));
    let of = |stage: &Arc<str>, worker| (Some(Arc::clone(stage)), worker);
    recorder.start_of(at(0), of(&detect, 0), Span::from_nanos(5), [(0, 3)].into_iter());
    recorder.became([((0, 3), Arc::clone(&read), 2)].into_iter());
    recorder.end_of(at(4), of(&detect, 0));
    recorder.start_of(at(4), of(&read, 1), Span::from_nanos(7), [(0, 3), (0, 3)].into_iter());
    recorder.end_of(at(9), of(&read, 1));
    while !writer.fetch() {}
    let first = "0,cam\n# take,cam,0\n# start,0,detect,0,5\n# become,cam,0,read,2\n# end,4,detect,0\n";
    let second = "# take,cam,0\n# take,cam,0\n# start,4,read,1,7\n# end,9,read,1\n";
    assert_eq!(String::from_utf8(writer.out).expect("UTF-8"), format!("{first}{second}"));
}
