//! The page of `pando bench report`, opened in a browser.

use std::{fs, path::Path, process::Command};

/// Whether this test is to be left out; fails instead where nothing may be.
fn skipped() -> bool {
    let found = Command::new("chromium").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("PANDO_NO_SKIP").is_none(), "no chromium: apt-get install chromium");
        println!("skipped: no chromium here (apt-get install chromium)");
    }
    !found
}

/// The page as the browser has understood it, and what it complained about.
fn opened(page: &Path, profile: &Path) -> (String, String) {
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_page_opens_with_every_plot() {
    if skipped() {
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let out = temp.path().join("report");
    let kernel =
        tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).expect("a directory");
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_pando"))
            .args(["bench", "report", "--out"])
            .arg(&out)
            .arg("--dir")
            .arg(kernel.path())
            .args(args)
            .output()
            .expect("pando runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = run(&["--quick", "--threads", "1,2"]);
    assert!(said.contains("index.html"), "{said}");
    let plots: Vec<String> = fs::read_dir(&out)
        .expect("the report's directory")
        .filter_map(|entry| {
            entry.expect("an entry").file_name().into_string().ok()?.strip_suffix(".svg").map(Into::into)
        })
        .collect();
    for plot in ["results", "crunl", "rndrename", "lseek", "statwalk", "dpath", "switches", "footprint"] {
        assert!(plots.iter().any(|name| name == plot), "no plot {plot}: {plots:?}");
    }
    let (dom, complaints) = opened(&out.join("index.html"), &temp.path().join("profile"));
    assert!(!complaints.contains("CONSOLE"), "{complaints}");
    for plot in &plots {
        let at = dom.find(&format!("<figure id=\"{plot}\">")).unwrap_or_else(|| panic!("{plot} is not on the page"));
        let figure = &dom[at..at + dom[at..].find("</figure>").expect("it ends")];
        assert!(figure.contains("<rect") || figure.contains("<circle"), "{plot} is empty: {figure}");
        // A browser opens what stands alone, too; it would show an error in the place of what it cannot parse.
        let (alone, complaints) = opened(&out.join(format!("{plot}.svg")), &temp.path().join("profile"));
        assert!(alone.contains("<svg") && !alone.contains("parsererror"), "{plot}: {alone}");
        assert!(!complaints.contains("CONSOLE"), "{complaints}");
    }
    // Drawn again from its figures, it is the same page.
    let page = fs::read(out.join("index.html")).expect("the page");
    run(&["--redraw"]);
    let again = fs::read(out.join("index.html")).expect("the page");
    assert_eq!(String::from_utf8_lossy(&page).replace(" --quick", ""), String::from_utf8_lossy(&again));
}
