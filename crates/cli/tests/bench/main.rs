//! `pando bench` as a whole. The tests exclude each other by one lock.

#[path = "../common/mod.rs"]
mod common;
mod ends;

use std::{
    env, fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use common::{has, pando, skipped};

/// Tests run one at a time, because each measures with as many threads as there are cores.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn command(args: &[&str]) -> Command {
    let mut command = pando(&["bench"]);
    command.args(args);
    command
}

fn start(args: &[&str]) -> Child {
    command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn run(args: &[&str]) -> Output {
    command(args).output().expect("it ends")
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("a directory").next().is_none()
}

#[test]
fn crunl_prints_a_table_and_writes_json() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (dir, json) = (temp.path().join("dir"), temp.path().join("out.json"));
    let target = format!("dir={}", dir.display());
    let json_arg = json.to_str().expect("UTF-8");
    let output = run(&[
        "crunl",
        &target,
        "--seconds",
        "0.05",
        "--warmup",
        "0.01",
        "--repeat",
        "2",
        "--seed",
        "5",
        "--threads",
        "2,1,2",
        "--json",
        json_arg,
    ]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.is_empty(), "progress is shown on terminals only: {stderr}");
    assert!(stdout.contains("CPU ns/op") && stdout.contains(&target) && stdout.contains("seed: 5"), "{stdout}");
    let text = fs::read_to_string(&json).expect("it was written");
    let rows: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let rows = rows.as_array().expect("an array");
    let threads: Vec<_> = rows.iter().map(|row| &row["threads"]).collect();
    assert_eq!(threads, [1, 2], "each number once");
    assert!(rows.iter().all(|row| row["ops_per_s"]["min"].as_f64() > Some(0.0)), "{text}");
    assert!(!dir.exists());
}

/// Options of a short run.
const SHORT: [&str; 6] = ["--seconds", "0.03", "--warmup", "0.01", "--repeat", "2"];

/// Runs, and returns what was printed and the rows of the report.
fn measure(args: &[&str], json: &Path) -> (String, Vec<serde_json::Value>) {
    let json_arg = json.to_str().expect("UTF-8");
    let output = run(&[args, &SHORT, &["--json", json_arg]].concat());
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {stderr}");
    let text = fs::read_to_string(json).expect("it was written");
    (stdout.into_owned(), serde_json::from_str(&text).expect("an array"))
}

#[test]
fn several_workloads_and_targets_in_one_run() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (dir, a, b) = (temp.path().join("dir"), temp.path().join("a.json"), temp.path().join("b.json"));
    let target = format!("dir={}", dir.display());
    let args = ["run", "rndrename", "unlink-shared:files=50", "--target", "mem", "--target", &target, "--latency"];
    let (stdout, rows) = measure(&args, &a);
    assert!(stdout.contains("p99 ns") && stdout.contains("loop of rndrename"), "{stdout}");
    let names: Vec<_> = rows.iter().map(|row| (row["workload"].clone(), row["target"].clone())).collect();
    let expected = |workload: &str| {
        [("mem", 1), (&*target, 1), ("mem", 2), (&*target, 2)].map(|(t, _)| (workload.into(), t.into())).to_vec()
    };
    let expected: Vec<(serde_json::Value, serde_json::Value)> =
        [expected("rndrename"), expected("unlink-shared:files=50")].concat();
    assert_eq!(names, expected);
    for row in &rows {
        assert!(row["p50_ns"].as_u64() <= row["p99_ns"].as_u64() && row["p50_ns"].as_u64() > Some(0), "{row}");
        assert!(row["peak_memory_bytes"].as_u64() > Some(1 << 20), "{row}");
        assert_eq!(row["mode"], "threads");
    }
    // create, rename and unlink each take the locks of their names once.
    let locks = &rows[0]["locks_per_op"]["names"]["acquired"];
    if cfg!(feature = "lock-stats") {
        assert!(locks.as_f64().is_some_and(|locks| (2.9..3.5).contains(&locks)), "{}", rows[0]);
        assert!(stdout.contains("locks of pandofs per op, rndrename mem 1: names 3."), "{stdout}");
        // The files of the other thread are created and removed outside of the count.
        let locks = &rows[6]["locks_per_op"]["names"]["acquired"];
        assert!(locks.as_f64().is_some_and(|locks| (0.99..1.01).contains(&locks)), "{}", rows[6]);
    } else {
        assert!(locks.is_null() && rows[0]["lock_waits_per_op"].is_null(), "{}", rows[0]);
    }
    // A round is 50 files of each thread, and only whole rounds are counted.
    assert!(rows[4..].iter().all(|row| row["ops"].as_u64().is_some_and(|ops| ops > 0 && ops % 50 == 0)));
    assert!(!dir.exists());

    fs::copy(&a, &b).expect("copying");
    let paths = [&a, &b].map(|path| path.to_str().expect("UTF-8"));
    let output = run(&["compare", paths[0], paths[1]]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("0 of 8 changed"), "{stdout}");
    let output = run(&["compare", paths[0], "/nowhere/b.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/b.json"));
}

#[test]
fn processes_measure_as_threads_do() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (dir, json) = (temp.path().join("dir"), temp.path().join("out.json"));
    let target = format!("dir={}", dir.display());
    // One workload of each pace, and one whose rounds use the same names each time. The last
    // one needs shared memory.
    let workloads = ["run", "crunl", "unlink-private:files=40", "mdtest-easy-stat:files=40", "lseek-shared"];
    let args = [&workloads[..], &["--target", &target, "--target", "mem", "--processes", "--latency"]].concat();
    let (stdout, rows) = measure(&args, &json);
    assert!(stdout.contains("processes"), "{stdout}");
    for row in &rows {
        assert_eq!(row["mode"], "processes");
        let possible = row["target"] == *target && row["workload"] != "lseek-shared";
        assert_eq!(row["not_measured"].is_null(), possible, "{row}");
        assert_eq!(row["ops"].as_u64() > Some(0), possible, "{row}");
        assert_eq!(row["p99_ns"].as_u64() > Some(0), possible, "{row}");
    }
    assert!(!dir.exists());
}

#[test]
fn unsupported_workloads_are_rows_without_figures() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let args = ["run", "crunl", "find-size", "--threads", "1"];
    let (stdout, rows) = measure(&args, &temp.path().join("out.json"));
    assert!(stdout.contains("n/a"), "{stdout}");
    assert_eq!((&rows[1]["ops_per_s"], rows.len()), (&serde_json::Value::Null, 2));
    let output = run(&["run", "find-size", "--threads", "1"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("n/a") && stderr.contains("nothing could be measured"), "{stdout}{stderr}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn mktree_creates_a_directory() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = temp.path().join("new");
    let path = dir.to_str().expect("UTF-8");
    let output = run(&["mktree", path, "7", "25", "0"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 25);
    let output = run(&["mktree", path, "7", "25", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not empty"));
}

#[test]
fn seeds_are_measured() {
    let _alone = alone();
    if !has(&["find", "git"]) {
        return;
    }
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let target = format!("dir={}", temp.path().join("new").display());
    let output = run(&["seeds", "mem", &target, "--scale", "100000"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    for published in ["36.2 -> 15.1", "82.4 -> 39.4", "315 -> 13", "46.1 -> 21.6", "0.099", "519", "24.5 % -> 4.2 %"] {
        assert!(stdout.contains(published), "{published}: {stdout}");
    }
    let line = |work: &str, target: &str| {
        let fits = |line: &&str| line.trim_start().starts_with(work) && line.contains(target);
        stdout.lines().find(fits).unwrap_or_else(|| panic!("{work} on {target}: {stdout}"))
    };
    // In process and in a directory, with the published number of workers. The look-ups that
    // miss are measured on a tree elsewhere.
    assert!(!line("crunl:steps=10 ", " mem ").contains("n/a") && !line("crunl:steps=10 ", "dir=").contains("n/a"));
    assert!(line("lseek:steps=100 ", "dir=").contains(" 100 "));
    assert!(!line("statwalk", " backed ").contains("n/a"));
    assert!(stdout.contains("Scale: iterations and files 1/100000"), "{stdout}");
    assert!(is_empty(temp.path()));
}

/// An ext4 file system in a file. Dropping it unmounts it.
struct Ext4(tempfile::TempDir);

impl Ext4 {
    /// Mounts it, or returns the reason why that is impossible.
    fn mount() -> Result<Self, String> {
        let temp = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (image, point) = (temp.path().join("image"), temp.path().join("mnt"));
        let make = || {
            fs::create_dir(&point)?;
            fs::File::create(&image)?.set_len(64 << 20)
        };
        make().map_err(|error: std::io::Error| error.to_string())?;
        call(Command::new("mkfs.ext4").args(["-q", "-F", "-I", "256"]).arg(&image))?;
        call(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point))?;
        Ok(Self(temp))
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let unmounted = call(Command::new("umount").arg(self.0.path().join("mnt")));
        if let Err(why) = unmounted {
            eprintln!("{why}");
        }
    }
}

fn call(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", said.trim())) }
}

#[test]
fn cold_caches_on_ext4() {
    let _alone = alone();
    let ext4 = match Ext4::mount() {
        Ok(ext4) => ext4,
        Err(why) => return skipped(&format!("no ext4 to try: {why}")),
    };
    let target = format!("dir={}", ext4.0.path().join("mnt/new").display());
    let workloads = ["statwalk:dirs=2,files=30", "xattrs:files=30,cold=1", "xattrs:files=30,cold=1,records=1"];
    let args = [&["run"][..], &workloads, &["--target", &target]].concat();
    let (stdout, rows) = measure(&args, &ext4.0.path().join("out.json"));
    for row in &rows {
        // Whole rounds: 60 files in the walk of each worker, 30 in each listing.
        assert!(row["not_measured"].is_null(), "{stdout}");
        assert!(row["ops"].as_u64().is_some_and(|ops| ops > 0 && ops % 30 == 0), "{row}");
    }
    assert_eq!(rows.len(), 6);
    assert!(!ext4.0.path().join("mnt/new").exists());
    a_seed_that_does_not_fit_fails_alone(&target);
    assert!(!ext4.0.path().join("mnt/new").exists());
}

/// The walk's 20 directories of 1,000 files do not fit into a small file system. That is reported,
/// and the rest is measured.
fn a_seed_that_does_not_fit_fails_alone(target: &str) {
    let output = run(&["seeds", "mem", target, "--scale", "100000"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    assert!(stderr.contains("No space left on device"), "{stderr}");
    let failed: Vec<&str> = stdout.lines().filter(|line| line.contains("failed: ")).collect();
    assert!(matches!(failed[..], [walk] if walk.contains("statwalk") && walk.contains(target)), "{stdout}");
    let cold = stdout.lines().find(|line| line.contains("xattrs:level=3,max=2,cold=1") && line.contains(target));
    assert!(cold.is_some_and(|line| !line.contains("n/a")), "{stdout}");
}

#[test]
fn footprint_measures_in_a_child() {
    let _alone = alone();
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let target = format!("dir={}", temp.path().display());
    let output = run(&["footprint", &target, "--count", "1000"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("empty file") && stdout.contains("empty directory"), "{stdout}");
    assert!(is_empty(temp.path()));

    let output = run(&["footprint", "mem", "--count", "20000"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let sizes = |stdout: &str| -> Vec<f64> {
        stdout.split_whitespace().filter(|word| word.contains('.')).flat_map(str::parse).collect()
    };
    // A name alone takes 16 bytes. No empty file or directory should take a page.
    let sane = |sizes: &[f64]| sizes.iter().all(|bytes| (16.0..4096.0).contains(bytes));
    assert!(sizes(&stdout).len() == 2 && sane(&sizes(&stdout)) && stdout.contains("its own cache"), "{stdout}");
    let output = run(&["footprint", "backed", "--count", "20000"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let cached: Vec<f64> = stdout.lines().filter(|line| line.contains("cached inode  ")).flat_map(sizes).collect();
    assert!(cached.len() == 1 && sane(&cached), "{stdout}");
}

#[test]
fn refusals_have_an_exit_code() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    fs::write(temp.path().join("precious"), "data").expect("writing");
    let target = format!("dir={}", temp.path().display());
    let output = run(&["crunl", &target, "--seconds", "0.05"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not empty"));
    assert!(temp.path().join("precious").exists());
    assert_eq!(run(&["crunl", "tmpfs"]).status.code(), Some(2));
}

/// Git tells hooks the repository and the index by the environment, which the programs of a hook
/// inherit.
#[test]
fn git_uses_a_repository_of_its_own() {
    let _alone = alone();
    if !has(&["git"]) {
        return;
    }
    let [temp, callers] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let target = format!("dir={}", temp.path().display());
    let args = ["git-diff", &target, "--set", "files=10", "--threads", "1"];
    let mut command = command(&[&args[..], &SHORT].concat());
    command.env("GIT_DIR", callers.path()).env("GIT_INDEX_FILE", callers.path().join("index"));
    let output = command.env("GIT_EXTERNAL_DIFF", "false").output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert!(is_empty(callers.path()));
}

/// The command in its own process group. It finds `name` as a program that runs `script`.
fn with_program(name: &str, script: &str, args: &[&str]) -> Output {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let program = temp.path().join(name);
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("writing");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
    let path = format!("{}:{}", temp.path().display(), env::var("PATH").unwrap_or_default());
    command(args).env("PATH", path).process_group(0).output().expect("it ends")
}

#[test]
fn output_files_are_opened_before_the_measurement() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let json = temp.path().join("x.json");
    fs::write(&json, "of another run").expect("writing");
    // A directory is refused.
    let target = format!("dir={}", temp.path().display());
    let nowhere = |output: &Output| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains("writing /nowhere/x: No such file"), "{output:?}");
    };
    nowhere(&run(&["crunl", &target, "--json", "/nowhere/x"]));
    for args in [["conflicts", "--json"], ["conflicts", "--svg"], ["cost", "--update"]] {
        nowhere(&with_program("valgrind", "exit 3", &[&args[..], &["/nowhere/x"]].concat()));
    }
    let output = run(&["crunl", &target, "--json", json.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(fs::read_to_string(&json).expect("still there"), "of another run");
    let new = temp.path().join("new.json");
    let output = run(&["crunl", &target, "--json", new.to_str().expect("UTF-8")]);
    assert!(output.status.code() == Some(2) && !new.exists(), "{output:?}");
}

#[test]
fn earlier_results_are_printed_if_the_run_fails_later() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let target = format!("dir={}", temp.path().display());
    let args = ["run", "crunl", "find-size:files=10", "--target", &target, "--threads", "1"];
    let output = with_program("find", "exit 3", &[&args[..], &SHORT].concat());
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("crunl") && stdout.contains("seed: ") && stderr.contains("status: 3"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
    let output = with_program("find", "kill -INT 0; sleep 3600", &["seeds", &target, "--scale", "100000"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("82.4 -> 39.4") && !stdout.contains("git-diff"), "{output:?}");
    assert_eq!(output.status.code(), Some(130));
}

#[test]
fn a_child_that_fails_is_a_failure() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let target = format!("dir={}", temp.path().display());
    let failed = |output: &Output, says: &str| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains(says), "{says}: {output:?}");
    };
    failed(&with_program("valgrind", "exit 3", &["cost"]), "under valgrind: the process ended with exit status: 3");
    let output = run(&["footprint", "mem", "dir=/proc/new", "--count", "1000"]);
    failed(&output, "dir=/proc/new: measuring in a fresh process: the process ended with exit status: 1");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("empty directory") && stdout.contains("its own cache"), "the results: {output:?}");
    let args = |workload| [workload, target.as_str(), "--set", "files=10", "--threads", "1"];
    let output = with_program("git", "exit 3", &args("git-diff"));
    failed(&output, &format!("bench: git-diff:files=10 on {target}: git init -q in "));
    let output = with_program("find", "exit 3", &args("find-size"));
    failed(&output, &format!("bench: find-size:files=10 on {target}: measuring: find ended with exit status: 3"));
    // The failure of a worker's program ends the worker.
    let args = ["find-size", &target, "--set", "files=10", "--processes", "--threads", "1"];
    failed(&with_program("find", "kill -KILL $PPID", &args), "the process ended with signal: 9");
    let output = with_program("find", "kill -KILL $PPID", &["seeds", &target, "--scale", "100000"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("failed: ") && stdout.contains("git-diff"), "the rest is measured: {output:?}");
    assert_eq!(output.status.code(), Some(1));
    // A child can also report that the request cannot be met.
    fs::write(temp.path().join("precious"), "data").expect("writing");
    assert_eq!(run(&["footprint", &target]).status.code(), Some(2));
}

#[test]
fn the_pairs_are_listed() {
    let _alone = alone();
    let output = run(&["conflicts", "--list"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(stdout.contains("383 pairs commute"), "{stdout}");
    assert!(stdout.contains("create and readdir do not commute: the list shows"), "{stdout}");
}

#[test]
fn a_missing_report_cannot_be_drawn_again() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let typo = temp.path().join("typo");
    let output = run(&["report", "--redraw", "--out", typo.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!typo.exists());
}

#[test]
fn an_unreadable_table_is_named() {
    let _alone = alone();
    let output = run(&["cost", "--check", "/nonexistent/table.json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("reading /nonexistent/table.json: No such file"), "{stderr}");
}

/// The address space has room for the stacks of seven threads, and some more. With an arena for
/// each thread, the allocator could take that, too.
#[test]
fn a_thread_that_cannot_be_started_is_a_failure() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let target = format!("dir={}", temp.path().display());
    for workload in ["crunl", "unlink-private"] {
        let mut limited = Command::new("/bin/sh");
        limited.args(["-c", "ulimit -v 2000000 && exec \"$0\" \"$@\""]).arg(env!("CARGO_BIN_EXE_pando"));
        limited.args(["bench", workload, &target, "--threads", "16"]).args(SHORT);
        limited.env("RUST_MIN_STACK", (256 << 20).to_string()).env("MALLOC_ARENA_MAX", "1");
        let output = limited.output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("starting thread ") && stderr.contains(" of 16"), "{output:?}");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(is_empty(temp.path()));
    }
}

/// The pipe stays open until the report is complete, even if the run ends early.
#[test]
fn a_pipe_gets_one_report() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (pipe, target) = (temp.path().join("pipe"), format!("dir={}", temp.path().join("dir").display()));
    call(Command::new("mkfifo").arg(&pipe)).expect("a pipe");
    let json = ["--target", &target, "--threads", "1", "--json", pipe.to_str().expect("UTF-8")];
    for (last, code) in [("stat-same", 0), ("find-size:files=10", 1)] {
        let reader = thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe)
        });
        let args = ["run", "crunl", "mkdir-rmdir", last];
        let output = with_program("find", "exit 3", &[&args[..], &json, &SHORT].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let text = reader.join().expect("no panic").expect("it was written");
        let rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("one array");
        assert_eq!(rows.len(), if code == 0 { 3 } else { 2 });
    }
}
