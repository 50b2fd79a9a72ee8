//! Mounts a tree, and serves it until it is unmounted.

use std::{path::Path, process::ExitCode};

use pando_console::{
    failure::{Failure, Result, say},
    memory_limits::{self, Limit},
    mountinfo,
    output::show,
    quote::for_shell,
    signals,
};
use pando_fuse::{Changes, DeviceTransport, RingTransport, Server, ServerOptions, Transport, trace::TraceListener};
use pando_hostfs::{HostOptions, Recheck};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{Vfs, VfsOptions};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use super::{
    args::{CommitWhen, IoUring, MountArgs},
    asked::Asked,
    daemon, injector,
    leave::Leaver,
    limits, notify, point, refused,
    source::{RECHECK, SourceTree},
    store::StoreTree,
};

/// The tree of a mount, and what belongs to it.
enum Tree {
    Memory,
    Source(SourceTree),
    Store(StoreTree),
}

/// Mounts a tree and serves it until it is unmounted.
///
/// # Errors
/// The tree cannot be mounted, each reason with its remedy, or the device failed.
pub fn run(args: &MountArgs, mut asked: Asked, in_background: bool) -> Result<ExitCode> {
    let shown = for_shell(&args.dir);
    let (mut prepared, held) = point::prepare(&args.dir, args.nonempty)?;
    if prepared.cleaned {
        say(format_args!("pando: {shown}: cleaned a mount left dead by a server that was killed"));
    }
    for (word, why) in &asked.without_effect {
        say(format_args!("pando: {shown}: -o {word} has no effect: {why}"));
    }
    let injector = injector::injector(&args.injector, tracing::enabled!(tracing::Level::INFO))?;
    let memory = memory_limits::smallest();
    let (inodes, bytes) = limits::inode_cache(args.cached_inodes, memory.as_ref());
    let options = VfsOptions::new()
        .directory_locks(args.pdirops.unwrap_or_default())
        .read_ahead(!args.no_read_ahead)
        .cached_inodes(inodes)
        .cached_bytes(bytes);
    let (vfs, tree) = match (&args.source, &args.store) {
        (Some(dir), _) => {
            let source = SourceTree::open(dir, host_options(args), asked.mount.allow_other, options)?;
            (source.vfs.clone(), Tree::Source(source))
        }
        (None, Some(dir)) => {
            let store = StoreTree::open(dir, args, options)?;
            (store.vfs.clone(), Tree::Store(store))
        }
        (None, None) => (in_memory(args, asked.mount.threads.least.get(), memory.as_ref(), options)?, Tree::Memory),
    };
    let changes = match &tree {
        Tree::Source(source) if source.is_watched => Changes::Reported { otherwise: args.valid(Changes::Elsewhere) },
        Tree::Source(_) if !args.exclusive => Changes::Elsewhere,
        _ => Changes::OnlyHere,
    };
    let options = ServerOptions {
        valid: args.valid(changes),
        changes,
        birth_times: args.birth_times,
        durable: args.commit == Some(CommitWhen::Acknowledged),
    };
    let server = Server::new(vfs.clone(), options);
    asked.mount.injector = injector.as_ref().map(injector::Counted::injector);
    // Catch signals before mounting: a signal between the two would leave a dead mount behind.
    let signals = Signals::new(signals::ending()).map_err(|error| Failure::system("cannot catch signals", &error))?;
    let connection = transport(args.io_uring)
        .connect(server, held.path(), &asked.mount)
        .map_err(|error| refused::explain(&args.dir, &error))?;
    // The directory below the mount must not stay in use.
    drop(held);
    let mount = mountinfo::at(&prepared.path).ok().flatten();
    let ignored = mount.as_ref().map(|mount| asked.ignored(mount)).unwrap_or_default();
    if !ignored.is_empty() {
        say(format_args!("pando: {shown}: -o {}: ignored: only root may mount so", ignored.join(",")));
    }
    let device = mount.map(|mount| mount.device);
    // `pando trace` connects to the listener. Without it the mount works all the same.
    let listener = device.as_deref().map(|device| TraceListener::start(vfs, device));
    if let Some(Err(error)) = &listener {
        warn!(%error, "this mount cannot be traced");
    }
    let leaver = Leaver { path: prepared.path.clone(), device };
    let served = leaver.while_serving(signals, || {
        announce(args, &prepared.path, connection.options(), in_background)?;
        prepared.keep();
        connection.serve().map_err(|error| Failure::system(format_args!("{shown}: the server ended"), &error))
    });
    // The device number may soon belong to another mount, which listens under that number.
    drop(listener);
    match &tree {
        Tree::Memory => {}
        Tree::Source(source) => {
            info!(descriptors = source.descriptors(), "open for inodes at the end");
            log_counts(&source.vfs);
        }
        Tree::Store(store) => log_counts(&store.vfs),
    }
    leaver.clean(served.is_err());
    let closed = match (tree, &args.store) {
        (Tree::Store(store), Some(dir)) => store.close(dir),
        _ => Ok(()),
    };
    served.and(closed)?;
    if let Some(injector) = injector {
        // Finish in any case, and not only if the log wants the report.
        let requests = injector.finish()?;
        info!("requests: {requests}");
    }
    info!(path = %prepared.path.display(), "unmounted");
    Ok(ExitCode::SUCCESS)
}

fn log_counts(vfs: &Vfs) {
    let counts = vfs.cache_counts();
    info!(
        inodes = counts.inodes,
        misses = counts.misses,
        loaded = counts.read_ahead,
        used = counts.read_ahead_used,
        wasted = counts.read_ahead_wasted,
        "cached at the end, cache misses, and inodes that read-ahead has loaded"
    );
}

fn host_options(args: &MountArgs) -> HostOptions {
    let recheck = match (args.exclusive, args.no_watch) {
        (true, _) => Recheck::Never,
        (false, true) => Recheck::Every(RECHECK),
        (false, false) => Recheck::Watch { otherwise: RECHECK },
    };
    HostOptions::new().recheck(recheck).latency(args.injector.latency_of_source())
}

fn transport(io_uring: IoUring) -> Box<dyn Transport> {
    match io_uring {
        IoUring::Auto => Box::new(RingTransport { required: false }),
        IoUring::Always => Box::new(RingTransport { required: true }),
        IoUring::Never => Box::new(DeviceTransport),
    }
}

fn in_memory(args: &MountArgs, threads: usize, memory: Option<&Limit>, options: VfsOptions) -> Result<Vfs> {
    let asked = MemOptions::new().size_bytes(args.size).inodes(args.inodes);
    if let Some(warning) = limits::warning(asked, threads, memory) {
        say(format_args!("pando: {}: {warning}", for_shell(&args.dir)));
    }
    let memfs = MemFs::new(limits::choose(asked, threads, memory));
    let uid = args.uid.unwrap_or_else(|| rustix::process::getuid().as_raw());
    let gid = args.gid.unwrap_or_else(|| rustix::process::getgid().as_raw());
    Vfs::with_options(memfs, options.owner(uid, gid).mode(args.mode))
        .map_err(|error| Failure::new(format!("cannot make the tree: {error}")))
}

/// Prints the line that says where the tree is mounted and how to unmount it.
fn announce(args: &MountArgs, path: &Path, options: ServerOptions, in_background: bool) -> Result<()> {
    let leave = if in_background { "to leave:" } else { "to leave: Ctrl-C, or" };
    let shown = for_shell(&args.dir);
    let tree = match (&args.source, &args.store) {
        (Some(source), _) => for_shell(source),
        (None, Some(store)) => format!("the store {}", for_shell(store)),
        (None, None) => "an in-memory tree".into(),
    };
    let seen = match options.changes {
        Changes::Reported { .. } => "changes by others in the source are seen as they happen\n".into(),
        Changes::Elsewhere => {
            format!("changes by others in the source are seen within {} s\n", (RECHECK + options.valid).as_secs_f64())
        }
        _ => String::new(),
    };
    let line = format!("{}: {tree} is mounted ({leave} pando umount {shown})\n{seen}", for_shell(path));
    if let Err(error) = notify::ready() {
        let shown = for_shell(&args.dir);
        say(format_args!("pando: {shown}: the service manager cannot be told of the mount: {error}"));
    }
    if in_background {
        return daemon::ready(&line);
    }
    show(&line);
    Ok(())
}
