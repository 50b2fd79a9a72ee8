//! The page of `pando bench report`, opened in a browser.

mod common;

use std::{fs, path::Path, process::Command};

use common::skipped;

/// Whether tracing takes seconds in this build, and not minutes. Other builds test a report without
/// traces.
const TRACED: bool = !cfg!(debug_assertions);

/// The page as the browser has parsed it, and the browser's complaints.
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

/// Words of the plots that lie beyond the edge of their plot. A browser lays them out, and a script
/// asks for their places.
fn clipped(page: &Path, profile: &Path) -> String {
    const SCRIPT: &str = "<pre id=\"clipped\"></pre><script>for (const text of document.querySelectorAll('svg text')) {\
        const [word, svg] = [text, text.closest('svg')].map(element => element.getBoundingClientRect());\
        if (word.left < svg.left - 1 || word.right > svg.right + 1 || word.top < svg.top - 1 || word.bottom > svg.bottom + 1)\
            document.getElementById('clipped').textContent += text.textContent + '; ';\
        }</script></body>";
    let html = fs::read_to_string(page).expect("the page");
    let asking = page.with_file_name("clipped.html");
    fs::write(&asking, html.replace("</body>", SCRIPT)).expect("written");
    let (dom, complaints) = opened(&asking, profile);
    assert!(!complaints.contains("CONSOLE"), "{complaints}");
    let words = dom.split("<pre id=\"clipped\">").nth(1).expect("the list");
    words[..words.find("</pre>").expect("it ends")].to_owned()
}

#[test]
fn the_page_opens_with_every_plot() {
    if !Command::new("chromium").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skipped("no chromium here (apt-get install chromium)");
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let out = temp.path().join("report");
    let kernel =
        tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).expect("a directory");
    let run = |args: &[&str]| {
        let mut pando = Command::new(env!("CARGO_BIN_EXE_pando"));
        if !TRACED {
            // In an empty PATH, valgrind is not found.
            pando.env("PATH", "/nowhere");
        }
        pando.args(["bench", "report", "--out"]).arg(&out).arg("--dir").arg(kernel.path()).args(args);
        pando.arg("--disk").arg(temp.path().join("disk"));
        let output = pando.output().expect("pando runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let args = ["--quick", "--threads", "1,2", "--seconds", "0.05", "--repeat", "2", "--count", "5000"];
    let said = run(&args);
    assert!(said.contains("index.html"), "{said}");
    assert_eq!(said.contains("valgrind is missing"), !TRACED, "{said}");
    let plots: Vec<String> = fs::read_dir(&out)
        .expect("the report's directory")
        .filter_map(|entry| {
            entry.expect("an entry").file_name().into_string().ok()?.strip_suffix(".svg").map(Into::into)
        })
        .collect();
    for plot in [
        "results",
        "crunl",
        "rndrename",
        "lseek",
        "statwalk",
        "statwalk-host",
        "listing-hot",
        "dpath",
        "dpath-full",
        "dpath-kept",
        "switches",
        "footprint",
    ] {
        assert!(plots.iter().any(|name| name == plot), "no plot {plot}: {plots:?}");
    }
    assert_eq!(plots.iter().any(|name| name == "conflicts"), TRACED, "{plots:?}");
    let (dom, complaints) = opened(&out.join("index.html"), &temp.path().join("profile"));
    assert!(!complaints.contains("CONSOLE"), "{complaints}");
    let (out_arg, dir, disk) = (out.display(), kernel.path().display(), temp.path().join("disk"));
    let (args, disk) = (args.join(" "), disk.display());
    let command = format!("<code>pando bench report --out {out_arg} --dir {dir} {args} --disk {disk}</code>");
    assert!(dom.contains(&command), "the page does not show the command that made it: {command}");
    for plot in &plots {
        let at = dom.find(&format!("<figure id=\"{plot}\">")).unwrap_or_else(|| panic!("{plot} is not on the page"));
        let figure = &dom[at..at + dom[at..].find("</figure>").expect("it ends")];
        assert!(figure.contains("<rect") || figure.contains("<circle"), "{plot} is empty: {figure}");
        // A browser opens a single plot, too. If it cannot parse it, it shows an error
        // instead.
        let (alone, complaints) = opened(&out.join(format!("{plot}.svg")), &temp.path().join("profile"));
        assert!(alone.contains("<svg") && !alone.contains("parsererror"), "{plot}: {alone}");
        assert!(!complaints.contains("CONSOLE"), "{complaints}");
    }
    if TRACED {
        let table = dom.find("<table id=\"offenders\">").map(|at| &dom[at..]).expect("the offenders");
        let table = &table[..table.find("</table>").expect("it ends")];
        let cells = table.split("<tr>").nth(2).map_or(0, |row| row.matches("<td>").count());
        assert!(cells == 5 || dom.contains("No offenders."), "{table}");
        assert!(dom.contains("under one hash key"), "quick: one key");
    } else {
        assert!(dom.contains("pando bench conflicts --svg"), "the page does not say how to get the matrix");
    }
    assert_eq!(clipped(&out.join("index.html"), &temp.path().join("profile")), "", "words beyond the edge");
    // Drawn again from its figures, the page is the same.
    let page = fs::read(out.join("index.html")).expect("the page");
    run(&["--redraw"]);
    let again = fs::read(out.join("index.html")).expect("the page");
    assert_eq!(String::from_utf8_lossy(&page), String::from_utf8_lossy(&again));
}
