//! Programs that others wrote to find what file systems do wrong. Each verifies what it does, and
//! says by its exit status whether all was as it must be.

use crate::{
    assert_all_given_back,
    common::{Mounted, can_mount, has},
    shell, unmounted,
};

/// What stress-ng exercises, all of it at the same time, with sizes that leave room for many
/// rounds. Nothing that changes more of the machine than files: iomix, of root, drops the kernel's
/// caches.
const STRESSORS: &str = "access chdir chmod chown dentry dir dirdeep dirmany fallocate fcntl filename flock fpunch fsize \
    fstat getdent handle hdd inotify lease link locka lockf lockofd mknod open rename seek symlink sync-file touch \
    utime xattr aiol readahead revio mmap msync sendfile splice";
const SIZES: &str = "--dirdeep-inodes 5000 --fallocate-bytes 16M --hdd-bytes 16M --seek-size 16M \
    --seek-punch --sync-file-bytes 16M --readahead-bytes 16M --revio-bytes 16M --mmap-file --mmap-bytes 16M \
    --msync-bytes 16M --sendfile-size 1M";

/// As root and as somebody else. `PANDO_STRESS_NG_SECONDS` says for how long, each time.
#[test]
fn stress_ng_finds_nothing() {
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

/// Blocks that say themselves where they belong, written in each way there is, and read again.
#[test]
fn fio_reads_what_it_wrote() {
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

/// The POSIX test suite, as root and the two users that it becomes. What it asks of a remount is
/// left out: mount(8) leaves that to a helper, which knows no file system that is mounted already.
#[test]
fn pjdfstest_finds_nothing() {
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

/// One file read and written in every way there is, mapped too, against a copy in memory; two of
/// them at a time. `PANDO_FSX_OPERATIONS` says how often, `PANDO_FSX_SEED` which; it says how to do
/// the same again if it finds something.
#[test]
fn fsx_reads_what_it_wrote() {
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
