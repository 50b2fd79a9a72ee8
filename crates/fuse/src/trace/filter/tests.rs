use super::*;

#[test]
fn filters_select_paths_and_patterns() {
    for (filter, wanted, unwanted) in [
        ("/a", &["/a", "/a/b", "/a/b/c"][..], &["/", "/ab", "/b/a"][..]),
        ("/a/", &["/a", "/a/b"], &["/ab"]),
        ("/", &["/", "/a"], &[]),
        ("/a/*", &["/a/b"], &["/a", "/a/b/c"]),
        ("**/*.o", &["/x.o", "/a/b/x.o"], &["/x.c"]),
        ("/[ab]?/{x,y}", &["/a1/x", "/b2/y"], &["/c1/x", "/a1/z", "/a12/x"]),
    ] {
        let parsed = PathFilter::parse(filter).expect(filter);
        assert!(wanted.iter().all(|path| parsed.wants(path.as_bytes())), "{filter}");
        assert!(!unwanted.iter().any(|path| parsed.wants(path.as_bytes())), "{filter}");
    }
    assert!(PathFilter::parse("/a/*").expect("a pattern").wants(b"/a/\xff"));
    assert!(PathFilter::parse("a").is_err_and(|says| says.contains("/a")));
    assert!(PathFilter::parse("").is_err());
    assert!(PathFilter::parse("/[a").is_err());
}
