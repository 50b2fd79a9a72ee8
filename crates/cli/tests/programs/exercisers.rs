//! Programs that others wrote to find errors of file systems. Each verifies its own results, and
//! reports errors by its exit status.

use crate::{
    assert_all_given_back,
    common::{Mounted, can_mount, has},
    shell, unmounted,
};

/// The tests of stress-ng that run at the same time, with sizes that allow many rounds. No test
/// changes more of the machine than files: iomix, for example, drops the kernel's caches as root.
const STRESSORS: &str = "access chdir chmod chown dentry dir dirdeep dirmany fallocate fcntl filename flock fpunch fsize \
    fstat getdent handle hdd inotify lease link locka lockf lockofd mknod open rename seek symlink sync-file touch \
    utime xattr aiol readahead revio mmap msync sendfile splice";
const SIZES: &str = "--dirdeep-inodes 5000 --fallocate-bytes 16M --hdd-bytes 16M --seek-size 16M \
    --seek-punch --sync-file-bytes 16M --readahead-bytes 16M --revio-bytes 16M --mmap-file --mmap-bytes 16M \
    --msync-bytes 16M --sendfile-size 1M";

/// As root and as another user. `PANDO_STRESS_NG_SECONDS` is the time for each.
#[test]
fn stress_ng_finds_no_errors() {
    if !can_mount() || !has(&["stress-ng", "setpriv"]) {
        return;
    }
    let mounted = Mounted::new(&["--allow-other", "--mode", "1777"]);
    let seconds = std::env::var("PANDO_STRESS_NG_SECONDS").unwrap_or_else(|_| "4".to_owned());
    let script = r#"
        for stressor in $2; do set -- "$@" "--$stressor" 1; done
        options="$3"
        seconds=$1
        shift 3
        for user in 0 65534; do
            setpriv --reuid "$user" --regid "$user" --clear-groups \
                stress-ng --verify --timeout "$seconds" --temp-path . $options "$@" 2>&1
        done
        test -z "$(ls -A)""#;
    shell(&mounted.root(), script, &[seconds.as_ref(), STRESSORS.as_ref(), SIZES.as_ref()]);
    assert_all_given_back(&mounted);
    unmounted(mounted);
}

/// Blocks that contain their own place, written in every way there is, and read again.
#[test]
fn fio_reads_back_its_data() {
    if !can_mount() || !has(&["fio"]) {
        return;
    }
    let mounted = Mounted::new(&[]);
    let script = r#"
        fio_verifies() {
            fio --minimal --name=it --verify=crc32c --verify_fatal=1 --verify_state_save=0 --do_verify=1 \
                --rw=randwrite --size=4M --bs=4k "$@" > /dev/null
            rm it.*
        }
        fio_verifies --ioengine=psync --bsrange=512-64k --bs_unaligned=1
        fio_verifies --ioengine=psync --bsrange=1k-16k --numjobs=3 --nrfiles=8 --fallocate=keep
        fio_verifies --ioengine=pvsync2 --fsync=16 --rw=randrw
        fio_verifies --ioengine=sync --sync=1 --bs=64k --rw=write
        fio_verifies --ioengine=libaio --iodepth=16 --bsrange=4k-128k
        fio_verifies --ioengine=libaio --iodepth=16 --direct=1
        fio_verifies --ioengine=posixaio --iodepth=8
        fio_verifies --ioengine=mmap --fsync=64
        fio_verifies --ioengine=libaio --iodepth=8 --direct=1 --numjobs=4 --filename=it.shared --offset_increment=4M
        test -z "$(ls -A)""#;
    shell(&mounted.root(), script, &[]);
    assert_all_given_back(&mounted);
    unmounted(mounted);
}

/// The POSIX test suite, as root and the two users that it becomes. Its tests of remounts are left
/// out: mount(8) calls a helper for them, which does not know a mounted file system.
#[test]
fn pjdfstest_finds_no_errors() {
    if !can_mount() || !has(&["pjdfstest"]) {
        return;
    }
    let mounted = Mounted::new(&["--allow-other", "--mode", "1777", "-o", "suid,dev"]);
    let elsewhere = Mounted::new(&["--allow-other"]);
    let temp = tempfile::tempdir().unwrap();
    let script = r#"
        {
            echo '[features]'
            for feature in posix_fallocate rename_ctime stat_st_birthtime utime_now utimensat; do
                echo "$feature = {}"
            done
            echo '[settings]'
            echo 'naptime = 0.01'
            echo '[dummy_auth]'
            printf 'entries = [ ["nobody", "%s"], ["daemon", "%s"] ]\n' "$(id -gn nobody)" "$(id -gn daemon)"
        } > "$1/configuration"
        pjdfstest --configuration-file "$1/configuration" --path . --secondary-fs "$2" > "$1/said" 2>&1 ||
            { cat "$1/said"; exit 1; }
        test -z "$(ls -A)"
        grep -c ' ok$' "$1/said""#;
    let said = shell(&mounted.root(), script, &[temp.path().as_ref(), elsewhere.root().as_ref()]);
    let passed: u32 = said.trim().parse().expect("a number of tests");
    assert!(passed > 300, "only {passed} tests ran");
    assert_all_given_back(&mounted);
    unmounted(mounted);
    unmounted(elsewhere);
}

/// Reads and writes one file in every way there is, also mapped, and compares it with a copy in
/// memory; two of them at a time. `PANDO_FSX_OPERATIONS` is the number of operations,
/// `PANDO_FSX_SEED` the seed. After an error it prints how to repeat the run.
#[test]
fn fsx_reads_back_its_data() {
    if !can_mount() || !has(&["fsx"]) {
        return;
    }
    let mounted = Mounted::new(&[]);
    let temp = tempfile::tempdir().unwrap();
    let operations = std::env::var("PANDO_FSX_OPERATIONS").unwrap_or_else(|_| "10000".to_owned());
    let seed = std::env::var("PANDO_FSX_SEED").unwrap_or_else(|_| "1".to_owned());
    let script = r#"
        cat > "$1/configuration" <<end
flen = 1000000
[weights]
$(for rarely in close_open invalidate fsync fdatasync posix_fadvise; do echo "$rarely = 0.2"; done)
$(for often in posix_fallocate punch_hole sendfile copy_file_range; do echo "$often = 1.0"; done)
end
        fsx -q -f "$1/configuration" -P "$1" -N "$2" -S "$3" one > "$1/one" 2>&1 & one=$!
        fsx -q -f "$1/configuration" -P "$1" -N "$2" -S "1$3" two > "$1/two" 2>&1 || { cat "$1/two"; exit 1; }
        wait $one || { cat "$1/one"; exit 1; }
        rm one two
        test -z "$(ls -A)""#;
    shell(&mounted.root(), script, &[temp.path().as_ref(), operations.as_ref(), seed.as_ref()]);
    assert_all_given_back(&mounted);
    unmounted(mounted);
}
