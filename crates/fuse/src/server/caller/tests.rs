use super::*;

#[test]
fn status_is_parsed_or_refused() {
    let text = "Name:\tGroups: 7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapEff:\t0000000000000010\n";
    let status = Status { uid: 4, gid: 8, groups: vec![9, 10], capabilities: 16, is_unrestricted: false };
    assert_eq!(Status::parse(text), Some(status));
    assert_eq!(Status::parse(&text.replace("9 10 ", "")).map(|status| status.groups), Some(vec![]));
    let unrestricted = |text: &str| Status::parse(text).is_some_and(|status| status.is_unrestricted);
    assert!(unrestricted(&format!("{text}NoNewPrivs:\t0\n")));
    assert!(!unrestricted(&format!("{text}NoNewPrivs:\t1\n")));
    assert!(!unrestricted(&format!("{text}NoNewPrivs:\t0\n").replace("Name:\t", "Name:\tiou-wrk-7 ")));
    for (what, with) in [("9 10", "9 x"), ("\t3\t4", ""), ("CapEff:\t0", "CapEff:\tg"), ("Gid", "gid")] {
        assert_eq!(Status::parse(&text.replace(what, with)), None, "{with}");
    }
}

#[test]
fn thread_in_proc_must_have_the_ids_of_the_caller() {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let me = Caller { tid: rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(), ..Caller::new(uid, gid) };
    assert_eq!(me.status().map(|status| (status.uid, status.gid)), Some((uid, gid)));
    assert_eq!(Caller { gid: gid + 1, ..me }.status(), None);
    assert_eq!(Caller { tid: 0, ..me }.status(), None);
}

/// Only the kernel can check what such a caller reads or makes.
#[test]
fn caller_that_is_not_visible_has_no_credentials() {
    for uid in [0, 1000] {
        assert!(Caller { tid: 0, ..Caller::new(uid, uid) }.reader_credentials().is_none(), "{uid}");
        for admin in [false, true] {
            assert!(Caller { tid: 0, ..Caller::new(uid, uid) }.maker_credentials(admin).is_none(), "{uid}");
        }
    }
}
