use super::*;

#[test]
fn lines_survive_a_round_trip() {
    let event = Event {
        op: TraceOp::Rename,
        start: Duration::from_micros(3),
        latency: Duration::from_nanos(70),
        error: Some(pando_vfs::Error::Exists),
        path: b"/a\"\n".to_vec(),
        second: Some(b"/\xff".to_vec()),
        thread: 4,
    };
    let lines = [
        TraceLine::Greeting { pando_trace: VERSION, pid: 3 },
        TraceLine::Refusal { refused: "no".into() },
        TraceLine::Lost { lost: 7 },
        TraceLine::Event(TraceEvent::from(&event)),
    ];
    for line in &lines {
        let text = serde_json::to_string(line).expect("JSON");
        assert!(!text.contains('\n'));
        assert_eq!(&serde_json::from_str::<TraceLine>(&text).expect("the same"), line);
    }
    let TraceLine::Event(event) = &lines[3] else { unreachable!("it is the event") };
    assert_eq!((event.path_bytes(), event.to_bytes()), (b"/a\"\n".to_vec(), Some(b"/\xff".to_vec())));
}

#[test]
fn requests_are_parsed_or_refused() {
    let request = |text: &str| serde_json::from_str::<TraceRequest>(text).expect("JSON").parse();
    assert!(
        request(r#"{"pando_trace":1}"#)
            .is_ok_and(|(options, path)| { options == TraceOptions::default() && path.is_none() })
    );
    let (options, path) =
        request(r#"{"pando_trace":1,"ops":["unlink"],"errors_only":true,"min_latency_ns":5,"path":"/a"}"#)
            .expect("fine");
    assert!(options.ops.contains(TraceOp::Unlink) && !options.ops.contains(TraceOp::Stat));
    assert!(options.errors_only && options.min_latency == Duration::from_nanos(5) && path.is_some());
    for (text, says) in [
        (r#"{"pando_trace":2}"#, "version 1"),
        (r#"{"pando_trace":1,"ops":["swim"]}"#, "unlink"),
        (r#"{"pando_trace":1,"path":"a"}"#, "slash"),
    ] {
        assert!(request(text).is_err_and(|error| error.contains(says)), "{text}");
    }
}
