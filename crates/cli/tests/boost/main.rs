//! `pando boost`: the output of programs stays the same, and the server sees many requests at once.

#[path = "../common/mod.rs"]
mod common;
mod links;
#[path = "../requests/mod.rs"]
mod requests;
mod signals;
mod watch;

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
};

use common::{Mounted, can_mount, has, is_root, pando, said, skipped};
use requests::alone;
use rustix::mount::{MountFlags, mount_remount};
use tempfile::TempDir;

/// Files in the listed directory. It also has two directories.
const FILES: usize = 150;

/// More than this many must have been read ahead. The exact number depends on a race between the
/// helper and the end of the program.
const AHEAD: usize = FILES / 4;

/// A server like those of many FUSE file systems and network stores: no readdirplus, and a delay
/// for each look-up.
const NAIVE: [&str; 3] = ["--delay", "lookup=500us,getattr=500us", "--no-readdirplus"];

/// A slow server with a tree that the kernel has not cached.
struct Store {
    mounted: Mounted,
}

impl Store {
    fn new(options: &[&str]) -> Self {
        let store = Self { mounted: Mounted::new(&[&NAIVE, options].concat()) };
        let tree = store.tree();
        fs::create_dir_all(tree.join("sub/deeper")).unwrap();
        fs::create_dir(tree.join("skipped")).unwrap();
        (0..FILES).for_each(|i| fs::write(tree.join(format!("f{i}")), "x".repeat(i)).unwrap());
        (0..40).for_each(|i| fs::write(tree.join(format!("sub/g{i}")), "").unwrap());
        fs::write(tree.join("sub/deeper/\u{e9}t\u{e9} *\n"), "odd").unwrap();
        symlink("f1", tree.join("sub/link")).unwrap();
        fs::write(tree.join("sub/stop"), "").unwrap();
        store
    }

    fn tree(&self) -> PathBuf {
        self.mounted.path("tree")
    }

    /// Makes the kernel forget names and attributes: a remount drops the caches of one file
    /// system.
    fn forget(&self) {
        mount_remount(self.mounted.root(), MountFlags::NOSUID | MountFlags::NODEV, c"").expect("remounts");
    }

    /// The most requests that the server has had at once.
    fn most_at_once(&self) -> u64 {
        self.count("waiting_max")
    }

    /// One of the counts of the server.
    fn count(&self, name: &str) -> u64 {
        let mut value = [0; 2048];
        let length = rustix::fs::getxattr(self.mounted.root(), "system.pandofs.requests", &mut value[..]).unwrap();
        let text = std::str::from_utf8(&value[..length]).unwrap();
        let count = text.split(&format!("\"{name}\":")).nth(1).expect("the count").trim_start();
        count[..count.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap()
    }
}

/// A command under boost, which reports at its end what the helper did.
fn boosted(program: impl AsRef<OsStr>, args: &[&str]) -> Command {
    let mut command = pando(&["-v", "boost", "--"]);
    command.arg(program).args(args).env("LC_ALL", "C");
    command
}

/// Separates the output of the program from the log of the helper, whose lines begin with their
/// level.
fn parted(output: Output) -> (Output, String) {
    let (ours, theirs): (Vec<_>, Vec<_>) =
        said(&output).lines().map(str::to_owned).partition(|line| line.contains(" INFO "));
    (Output { stderr: theirs.join("\n").into_bytes(), ..output }, ours.join("\n"))
}

/// A number from the last line of the helper.
fn count(log: &str, name: &str) -> usize {
    let value = log.split(&format!(" {name}=")).nth(1).unwrap_or_else(|| panic!("no {name} in {log:?}"));
    value.split_whitespace().next().unwrap().parse().unwrap()
}

/// Runs a program without and with boost, each time after the kernel has forgotten the tree. The
/// outcomes must be equal. Returns the command line and the log of the helper.
fn same(store: &Store, program: impl AsRef<OsStr>, args: &[&str]) -> String {
    let shown = format!("{} {args:?}", program.as_ref().display());
    store.forget();
    let mut plain = Command::new(&program);
    let plain = plain.args(args).env("LC_ALL", "C").stdin(Stdio::null()).output().expect("starts");
    store.forget();
    let (with, log) = parted(boosted(program, args).output().expect("starts"));
    assert_eq!(with.status.code(), plain.status.code(), "{shown}: {}", said(&with));
    assert_eq!(said(&with), said(&plain).trim_end(), "{shown}");
    assert!(with.stdout == plain.stdout, "{shown}: {} and {}", text(&plain.stdout), text(&with.stdout));
    format!("{shown}: {log}")
}

/// Runs until the log is as wanted, at most `attempts` times, because the scheduler influences how
/// far ahead the helper gets. Returns the last log.
fn one_of(attempts: usize, mut run: impl FnMut() -> String, wanted: impl Fn(&str) -> bool) -> String {
    let mut log = String::new();
    let mut once = || {
        log = run();
        wanted(&log)
    };
    assert!((0..attempts).any(|_| once()), "{log}");
    log
}

/// As [`same`], until many entries were read ahead.
fn same_and_ahead(store: &Store, program: impl AsRef<OsStr>, args: &[&str], wanted: impl Fn(&str) -> bool) {
    one_of(5, || same(store, &program, args), |log| count(log, "asked") > AHEAD && wanted(log));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The program that lists directories in many ways, compiled once.
fn probe() -> &'static Path {
    static PROBE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROBE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        // An unprivileged user runs it too.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("probe");
        assert!(compile(&path, &["-pthread"]));
        (directory, path)
    });
    path
}

/// Whether the program could be compiled. Libraries for static and for sanitized programs are in
/// separate packages.
fn compile(to: &Path, options: &[&str]) -> bool {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/boost/probe.c");
    let status = Command::new("cc").args(options).args(["-O1", "-w", source, "-o"]).arg(to).status().expect("cc");
    if !status.success() {
        skipped(&format!("cc {options:?}: {status}"));
    }
    status.success()
}

#[test]
fn each_way_to_list_a_directory_is_noticed_and_unchanged() {
    let _alone = alone();
    if !can_mount() || !has(&["cc"]) {
        return;
    }
    let store = Store::new(&[]);
    let tree = store.tree();
    let tree = tree.to_str().unwrap();
    let ways = "readdir readdir_r scandir fts fts-chdir ftw nftw nftw-chdir nftw-depth nftw-jump glob";
    for way in ways.split(' ') {
        same_and_ahead(&store, probe(), &[way, tree], |log| count(log, "most_at_once") > 4);
    }
    store.mounted.umount();
}

#[test]
fn a_walk_within_one_file_system_reports_no_other() {
    let _alone = alone();
    if !can_mount() || !has(&["cc"]) {
        return;
    }
    let store = Store::new(&[]);
    let above = store.mounted.root().parent().unwrap().to_owned();
    let log = same(&store, probe(), &["fts-xdev", above.to_str().unwrap()]);
    assert_eq!(count(&log, "posts"), 1, "{log}");
    store.mounted.umount();
}

#[test]
fn programs_that_fork_thread_change_root_unshare_close_all_or_drop_privileges_still_work() {
    let _alone = alone();
    if !can_mount() || !has(&["cc"]) {
        return;
    }
    let store = Store::new(&["--allow-other"]);
    let tree = store.tree();
    fs::set_permissions(store.mounted.root().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let tree = tree.to_str().unwrap();
    for way in ["fork", "fork-beside", "threads", "close-all", "unshare", "many", "lock"] {
        // How far ahead the helper gets depends on the machine. Here it is enough that it works.
        one_of(20, || same(&store, probe(), &[way, tree]), |log| count(log, "asked") > 0);
    }
    // The helper cannot be reached, or its address is invalid: the program runs unboosted.
    for way in ["chroot", "limit", "sandbox", "inherited", "drop"] {
        let log = same(&store, probe(), &[way, tree]);
        assert_eq!(count(&log, "asked"), 0, "{way}: {log}");
    }
    same(&store, probe(), &["errors", tree]);
    store.mounted.umount();
}

#[test]
fn real_programs_print_the_same() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let store = Store::new(&[]);
    let tree = store.tree();
    let tree = tree.to_str().unwrap();
    let walk = "import os,sys\nfor d,_,fs in os.walk(sys.argv[1]):\n for f in fs: print(d,f,os.lstat(d+'/'+f).st_size)";
    let scan = "import os,sys\nfor e in os.scandir(sys.argv[1]): print(e.name,e.stat(follow_symlinks=False).st_size)";
    let perl = "opendir(D,$ARGV[0]); for(readdir D){@s=lstat \"$ARGV[0]/$_\"; print \"$_ $s[7]\\n\"}";
    let copy = "d=$(mktemp -d) && rsync -a \"$1/\" $d && (cd $d && find . -printf '%P %s %m %T@\\n' | sort); rm -r $d";
    // The programs that must be installed, and the command line.
    let ours: [(&[&str], &str, &[&str]); 10] = [
        (&["ls"], "ls", &["-l", tree]),
        (&["ls"], "ls", &["-lR", tree]),
        (&["find"], "find", &[tree, "-printf", "%P %s %m %i %T@\\n"]),
        (&["du"], "du", &["-a", tree]),
        (&["tar"], "tar", &["cf", "-", "-C", tree, "."]),
        (&["rsync"], "rsync", &["-an", "--out-format=%n %l", &format!("{tree}/"), "/nowhere/"]),
        (&["rsync", "find"], "/bin/sh", &["-c", copy, "sh", tree]),
        (&["python3"], "python3", &["-c", walk, tree]),
        (&["python3"], "python3", &["-c", scan, tree]),
        (&["perl"], "perl", &["-e", perl, tree]),
    ];
    for (needed, program, args) in ours {
        if has(needed) {
            // rsync ends with a listing of its own, on a fast disk. The totals count
            // both.
            same_and_ahead(&store, program, args, |_| true);
        }
    }
    assert!(store.most_at_once() > 4);
    store.mounted.umount();
}

#[test]
fn git_says_the_same() {
    let _alone = alone();
    if !can_mount() || !has(&["git"]) {
        return;
    }
    let store = Store::new(&[]);
    let tree = store.tree();
    let git = |args: &[&str]| {
        let done = Command::new("git").arg("-C").arg(&tree).args(args).output().expect("git");
        assert!(done.status.success(), "{}", said(&done));
    };
    git(&["init", "-q"]);
    git(&["add", "f1", "sub"]);
    let args = ["-C", tree.to_str().unwrap(), "status", "--porcelain", "-uall"];
    one_of(5, || same(&store, "git", &args), |log| count(log, "asked") > 0);
    store.mounted.umount();
}

#[test]
fn many_calls_are_in_flight_with_boost_and_one_without() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let store = Store::new(&["--depth", "16"]);
    let tree = store.tree();
    store.forget();
    let plain = Command::new("ls").arg("-l").arg(&tree).output().expect("ls");
    assert!(plain.status.success());
    assert_eq!(store.most_at_once(), 1);
    one_of(5, || same(&store, "ls", &["-l", tree.to_str().unwrap()]), |_| store.most_at_once() > 4);
    let few = || {
        store.forget();
        let mut few = pando(&["-v", "boost", "--max-inflight", "3", "ls", "-l"]);
        let (_, log) = parted(few.arg(&tree).output().unwrap());
        assert!(count(&log, "most_at_once") <= 3, "no more than were asked for: {log}");
        log
    };
    one_of(5, few, |log| count(log, "most_at_once") == 3);
    store.mounted.umount();
}

#[test]
fn the_helper_stops_where_the_kernel_caches_nothing() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let store = Store::new(&["--attr-timeout", "0"]);
    let tree = store.tree();
    let stopped = |log: &str| count(log, "asked") < FILES / 2 && count(log, "forgotten") == 1;
    let log = one_of(5, || same(&store, "ls", &["-lR", tree.to_str().unwrap()]), stopped);
    assert!(log.contains("keeps no answers"), "{log}");
    store.mounted.umount();
}

#[test]
fn the_helper_stops_where_calls_are_fast() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    (0..3000).for_each(|i| fs::write(directory.path().join(format!("f{i}")), "").unwrap());
    let list = || {
        let (output, log) = parted(boosted("ls", &["-l", directory.path().to_str().unwrap()]).output().unwrap());
        assert!(output.status.success());
        assert_eq!(text(&output.stdout).lines().count(), 3001);
        log
    };
    // A trial of sixteen names at the start, and one for each thousand names. The listing may
    // end before the first trial.
    one_of(20, list, |log| count(log, "asked") <= 16 * 5 && count(log, "fast") >= 1);
}

#[test]
fn exit_codes_are_those_of_the_program() {
    let _alone = alone();
    let codes = |program: &str, args: &[&str]| {
        let output = pando(&["boost", "--", program]).args(args).output().unwrap();
        (output.status.code().unwrap(), said(&output))
    };
    assert_eq!(codes("/bin/sh", &["-c", "exit 3"]), (3, String::new()));
    assert_eq!(codes("/bin/sh", &["-c", "kill -9 $$"]), (137, String::new()));
    let (code, errors) = codes("no-such-program-here", &[]);
    assert!(code == 127 && errors.contains("no-such-program-here: no such program"), "{code} {errors}");
    let (code, errors) = codes("/nowhere/at/all", &[]);
    assert!(code == 127 && errors.contains("/nowhere/at/all"), "{code} {errors}");
    let (code, errors) = codes("", &[]);
    assert!(code == 127 && errors.contains("'': no such program"), "{code} {errors}");
    let (code, errors) = codes("/etc/passwd", &[]);
    assert!(code == 126 && errors.contains("cannot be executed"), "{code} {errors}");
    let (code, _) = codes("/etc", &[]);
    assert_eq!(code, 126);
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    fs::write(&script, "#!/no/interpreter\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let (code, errors) = codes(script.to_str().unwrap(), &[]);
    assert!(code == 126 && errors.contains("interpreter"), "{code} {errors}");
    // A program for another CPU architecture is not run as a script.
    let foreign = directory.path().join("foreign");
    let mut program = fs::read(env!("CARGO_BIN_EXE_pando")).unwrap();
    program[18] ^= 1;
    fs::write(&foreign, program).unwrap();
    fs::set_permissions(&foreign, Permissions::from_mode(0o755)).unwrap();
    let (code, errors) = codes(foreign.to_str().unwrap(), &[]);
    assert!(code == 126 && errors.contains("cannot be executed"), "{code} {errors}");
}

#[test]
fn a_script_that_names_no_interpreter_is_run_by_the_shell() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    fs::write(&script, "echo $0 $1; exit 5\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    for program in [script.as_os_str(), OsStr::new("script")] {
        let output = boosted(program, &["one"]).env("PATH", &path).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{}", said(&output));
        assert_eq!(text(&output.stdout), format!("{} one\n", script.display()));
    }
}

#[test]
fn unboosted_programs_run_and_are_named() {
    let _alone = alone();
    if !has(&["cc"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("static");
    if compile(&program, &["-static", "-pthread"]) {
        let (output, log) = parted(boosted(&program, &["readdir", "/"]).output().unwrap());
        assert!(output.status.success() && !output.stdout.is_empty());
        assert!(log.contains("statically linked") && count(&log, "posts") == 0, "{log}");
    }
    let (output, log) = parted(boosted("true", &[]).output().unwrap());
    assert!(output.status.success() && log.contains("no program reported that it reads a directory"), "{log}");
    let source = directory.path().join("direct.c");
    fs::write(&source, "long syscall(long, ...); int main(void) { return syscall(39) == 0; }").unwrap();
    let program = directory.path().join("direct");
    assert!(Command::new("cc").arg(&source).arg("-o").arg(&program).status().unwrap().success());
    let (output, log) = parted(boosted(&program, &[]).output().unwrap());
    assert!(output.status.success() && log.contains("but syscall, which calls the kernel"), "{log}");
    let program = directory.path().join("sanitized");
    if compile(&program, &["-fsanitize=address", "-pthread"]) {
        let (output, log) = parted(boosted(&program, &["readdir", "/"]).output().unwrap());
        assert!(output.status.success() && log.contains("AddressSanitizer"), "{log} {}", said(&output));
    }
    if is_root() {
        let program = directory.path().join("setuid");
        fs::copy(probe(), &program).unwrap();
        std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
        let (output, log) = parted(boosted(&program, &["readdir", "/"]).output().unwrap());
        assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
        assert!(log.contains("setuid") && count(&log, "posts") == 0, "{log}");
    }
}

#[test]
fn another_preload_is_kept_and_our_files_are_removed() {
    let _alone = alone();
    let script = "echo $LD_PRELOAD; ls $PANDO_BOOST; echo $PANDO_BOOST";
    let output = boosted("/bin/sh", &["-c", script]).env("LD_PRELOAD", "libc.so.6").output().unwrap();
    let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    let [preload, listed, board] = &lines[..] else { panic!("{lines:?} {}", said(&output)) };
    let ours = preload.strip_prefix("libc.so.6:").expect("the one before comes first");
    assert!(ours.ends_with("libpando_boost.so") && Path::new(ours).exists(), "{ours}");
    assert_eq!(listed, board);
    assert!(!Path::new(board).exists(), "{board} is left");
}

#[test]
fn files_of_a_killed_helper_are_removed_by_the_next_one() {
    let _alone = alone();
    let temp = tempfile::tempdir().unwrap();
    let board_of = |child: &mut Child| {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        PathBuf::from(line.trim_end())
    };
    // The program ends with its input, whichever process is killed.
    let start = || {
        let mut command = pando(&["boost", "--", "/bin/sh", "-c", "echo $PANDO_BOOST; read -r _"]);
        command.env("TMPDIR", temp.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let (mut killed, mut alive) = (start(), start());
    let (left, kept) = (board_of(&mut killed), board_of(&mut alive));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(left.starts_with(temp.path()) && left.exists() && kept.exists());
    assert!(socket_of(&left).exists() && socket_of(&kept).exists());
    let output = boosted("true", &[]).env("TMPDIR", temp.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(!left.exists() && !socket_of(&left).exists(), "{} is left", left.display());
    assert!(kept.exists() && socket_of(&kept).exists(), "{} is in use", kept.display());
    drop(alive.stdin.take());
    alive.wait().unwrap();
    assert!(!kept.exists() && !socket_of(&kept).exists());
}

/// The socket of the helper, from the page that programs find in their environment.
fn socket_of(board: &Path) -> PathBuf {
    let name = board.file_name().unwrap().to_str().unwrap().strip_prefix("board.").unwrap();
    board.with_file_name("sockets").join(name)
}

/// The kernel must refuse messages of other processes: the helper would have to close each received
/// descriptor, however long that takes.
#[test]
fn only_the_program_can_send_to_the_helper() {
    let _alone = alone();
    let temp = tempfile::tempdir().unwrap();
    fs::set_permissions(temp.path(), Permissions::from_mode(0o777)).unwrap();
    let mut command =
        pando(&["boost", "--", "/bin/sh", "-c", "echo $PANDO_BOOST; cat /proc/net/unix; echo; read -r _; :"]);
    let mut child = command.env("TMPDIR", temp.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let lines: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    let socket = socket_of(Path::new(&lines[0]));
    let address = format!(" {}", socket.display());
    assert!(lines.iter().any(|line| line.ends_with(&address)), "{lines:?}");
    let name = socket.file_name().unwrap().to_str().unwrap();
    let abstract_name = |line: &&String| line.contains(" @") && line.contains(name);
    assert_eq!(lines.iter().find(abstract_name), None, "reachable past its directory");
    assert_eq!(fs::metadata(socket.parent().unwrap()).unwrap().permissions().mode() & 0o7777, 0o700);
    if is_root() {
        let by = |user| Command::new("test").arg("-S").arg(&socket).uid(user).status().unwrap().success();
        assert!(by(0) && !by(65534));
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!socket.exists());
}

#[test]
fn children_in_a_new_root_do_not_see_the_helper() {
    let _alone = alone();
    if !is_root() || !has(&["ldd"]) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let needed = Command::new("ldd").arg("/bin/ls").output().expect("ldd");
    let needed = text(&needed.stdout);
    let libraries = needed.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/bin/ls"]) {
        let to = root.path().join(&file[1..]);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    let lists = || {
        let chroot = ["chroot", root.path().to_str().unwrap(), "/bin/ls", "-l", "/bin"];
        // The second time, boost itself runs under boost.
        for before in [&[][..], &[env!("CARGO_BIN_EXE_pando"), "boost", "--"]] {
            let command = [before, &chroot[..]].concat();
            let (output, _) = parted(boosted(command[0], &command[1..]).output().unwrap());
            assert!(output.status.success(), "{}", said(&output));
            assert_eq!(said(&output), "");
            assert!(text(&output.stdout).contains(" ls\n"));
        }
    };
    lists();
    // The library exists but cannot be loaded, as with an older C library.
    let library = boosted("/bin/sh", &["-c", "echo $LD_PRELOAD"]).env_remove("LD_PRELOAD").output().unwrap();
    let library = root.path().join(text(&library.stdout).trim_end().strip_prefix('/').expect("a path"));
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    fs::write(&library, "").unwrap();
    lists();
}

#[test]
fn programs_of_another_c_library_are_boosted_too() {
    let _alone = alone();
    if !can_mount() || !has(&["musl-gcc"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/boost/portable.c");
    let program = directory.path().join("portable");
    assert!(Command::new("musl-gcc").arg(source).arg("-o").arg(&program).status().unwrap().success());
    let store = Store::new(&[]);
    let tree = store.tree();
    for way in ["readdir", "readdir64", "scandir", "nftw"] {
        same_and_ahead(&store, &program, &[way, tree.to_str().unwrap()], |_| true);
    }
    store.mounted.umount();
}

/// In another mount namespace another process may listen at the helper's path.
#[test]
fn only_the_helper_gets_the_messages() {
    let _alone = alone();
    if !is_root() || !has(&["python3", "unshare", "mount"]) {
        return;
    }
    let listen = "import os, socket, subprocess\n\
        directory, page = os.path.split(os.environ['PANDO_BOOST'])\n\
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)\n\
        listener.bind(directory + '/sockets/' + page.removeprefix('board.'))\n\
        subprocess.run(['ls', directory], stdout=subprocess.DEVNULL, check=True)\n\
        try: print('told:', listener.recv(64))\n\
        except BlockingIOError: print('nothing')\n";
    let script = "mount -t tmpfs none ${PANDO_BOOST%/*}/sockets && exec python3 -c \"$0\"";
    let output = boosted("unshare", &["--mount", "/bin/sh", "-c", script, listen]).output().unwrap();
    assert_eq!(text(&output.stdout), "nothing\n", "{}", said(&output));
}
