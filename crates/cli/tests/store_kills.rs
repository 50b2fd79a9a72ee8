//! The server of a store is killed, again and again, under git, sqlite and a program that makes
//! files. Afterwards, everything is there that was acknowledged to these programs. Of their later
//! work the first part may be there, without gaps. `PANDO_STORE_KILLS` is the number of kills.

mod common;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use common::{Mounted, can_mount, has, run, said};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// Settings for all scripts. `$1` is a directory of the host, in which the programs note what was
/// acknowledged to them.
const SETTINGS: &str = r#"
    export LC_ALL=C HOME="$1" GIT_CONFIG_NOSYSTEM=1
    git="git -C repository -c gc.auto=0 -c core.fsync=all -c user.name=Somebody -c user.email=somebody@example.org"
    done_is() { echo $2 >"$1.new" && mv "$1.new" "$1"; }
    sql() { sqlite3 -bail database "$@"; }
    numbers() { if [ -s "$1" ]; then cat "$1"; else echo 0; fi; }
"#;

/// The programs, each in a loop until the server is gone. A number is acknowledged when an fsync
/// has returned after the work.
const WORK: &str = r#"
    exec 2>"$1/errors"
    mkdir -p repository
    [ ! -d repository/.git ] || find repository/.git -name '*.lock' -delete
    git init -q repository
    commits() {
        n=$($git rev-list --count HEAD || echo 0)
        while n=$((n + 1)); do
            mkdir -p repository/$((n % 7)) && echo $n >repository/$((n % 7))/file$n
            echo $n >>repository/all
            $git add -A && $git commit -q -m "number $n" && sync repository/all && done_is "$1/commits" $n || exit
        done
    }
    rows() {
        sql "pragma journal_mode=$2; create table if not exists t(n integer primary key, filler)" >&2 || exit
        n=$(sql "select count(*) from t") || exit
        while n=$((n + 1)); do
            sql "pragma synchronous=extra; insert into t values($n, randomblob(20000))" && done_is "$1/rows" $n || exit
        done
    }
    files() {
        mkdir -p files && n=$(ls files | wc -l)
        while n=$((n + 1)); do echo $n >files/$n || exit; done
    }
    commits "$1" & rows "$1" "$2" & files &
    wait
"#;

/// Checks what the programs have left.
const CHECKS: &str = r#"
    if [ -s "$1/commits" ]; then
        find repository/.git -name '*.lock' -delete
        $git fsck --full --strict
        found=$($git rev-list --count HEAD)
        [ "$found" -ge "$(numbers "$1/commits")" ]
        $git show HEAD:all | tail -n 1 | grep -qx "$found"
    fi
    if [ -s "$1/rows" ]; then
        [ "$(sql 'pragma integrity_check')" = ok ]
        [ "$(sql 'select count(*) = max(n) and max(n) >= '"$(numbers "$1/rows")"' from t')" = 1 ]
    fi
    # The files that are there are the first ones. The last may be empty: the crash came between
    # its creation and the write.
    if [ -n "$(ls files 2>/dev/null)" ]; then
        last=$(ls files | wc -l)
        whole=$(seq $((last - 1)))
        [ "$(cd files && cat /dev/null $whole)" = "$whole" ] && [ -e files/$last ]
        rm -r files
    fi
"#;

/// A shell in the mounted tree, in a process group of its own.
fn shell(tree: &Path, script: &str, args: &[&str]) -> Child {
    let mut command = Command::new("sh");
    command.args(["-euc", &format!("{SETTINGS}{script}"), "sh"]).args(args).current_dir(tree);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().expect("a shell")
}

#[test]
fn killed_server_leaves_whole_repositories_and_databases() {
    if !can_mount() || !has(&["git", "sqlite3", "sh", "find", "grep", "sync"]) {
        return;
    }
    let kills = pandofs_testkit::number("PANDO_STORE_KILLS").unwrap_or(10);
    let acknowledged = tempfile::tempdir().unwrap();
    let told = acknowledged.path().to_str().unwrap();
    let store = tempfile::tempdir().unwrap();
    let mut temp = tempfile::tempdir().unwrap();
    for round in 0..kills {
        let milliseconds = 100 + round * 7919 % 900;
        println!("round {round}: killed after {milliseconds} ms");
        temp = work_until_killed(temp, store.path(), told, round, Duration::from_millis(milliseconds));
        let checked = run(&["store", "check", store.path().to_str().unwrap()]);
        assert!(checked.status.success(), "{}{}", String::from_utf8_lossy(&checked.stdout), said(&checked));
        let mounted = Mounted::again(temp, &["--store", store.path().to_str().unwrap()]);
        let output = shell(&mounted.root(), CHECKS, &[told]).wait_with_output().unwrap();
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), said(&output));
        temp = stop(mounted);
    }
    let number = |of: &str| fs::read_to_string(acknowledged.path().join(of)).unwrap_or_default();
    println!("{} commits, {} rows", number("commits").trim(), number("rows").trim());
    assert!(!number("commits").is_empty() && !number("rows").is_empty(), "they have worked");
}

/// Mounts the store, and kills its server while the programs work.
fn work_until_killed(temp: TempDir, store: &Path, told: &str, round: u64, after: Duration) -> TempDir {
    let commit = ["20ms", "300ms", "5s"][round as usize % 3];
    let mut mounted = Mounted::again(temp, &["--store", store.to_str().unwrap(), "--commit", commit]);
    let journal = ["wal", "delete"][round as usize / 5 % 2];
    let work = shell(&mounted.root(), WORK, &[told, journal]);
    if round == 0 {
        // Something of both is there for all rounds that follow.
        let is_done = |what: &str| fs::metadata(Path::new(told).join(what)).is_ok();
        pandofs_testkit::await_value(true, || is_done("commits") && is_done("rows"));
    }
    thread::sleep(after);
    kill_process(mounted.pid(), Signal::KILL).unwrap();
    let (_, errors) = mounted.ended();
    assert!(!errors.contains("panicked"), "{errors}");
    // A loop that does not notice that the server is gone must not go on.
    let _ = kill_process_group(Pid::from_child(&work), Signal::KILL);
    work.wait_with_output().unwrap();
    mounted.into_temp()
}

fn stop(mut mounted: Mounted) -> TempDir {
    let output = run(&["umount", mounted.root().to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(mounted.ended().0.success());
    mounted.into_temp()
}
