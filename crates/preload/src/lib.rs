//! The library that `pando boost` loads into programs with `LD_PRELOAD`, as bytes.
//!
//! It is written in C, because it deals with the C library's interface: variadic functions,
//! `<fts.h>`, `<ftw.h>`, control messages. The build script compiles it with the compiler driver
//! that also links Rust programs, and embeds it here. So `cargo build` and `cargo install` need no
//! other tools, and there is no file to install.
//!
//! # What it does to a program
//!
//! Before a directory is read, it sends one datagram to the helper: a descriptor of the directory,
//! how many names the program has read so far, and where it reads next. Nothing comes back. These
//! functions are replaced:
//!
//! | functions | when the helper is told |
//! | --- | --- |
//! | `readdir`, `readdir64`, `readdir_r`, `readdir64_r` | at the first name, and every 1024 names |
//! | `scandir`, `scandirat` and their 64-bit names | before the call |
//! | `fts_read`, `fts_children` and their 64-bit names | before a directory is descended into |
//! | `ftw`, `nftw` and their 64-bit names | after the program's function has seen a directory |
//! | `glob`, `glob64` | before the call, of the directory before the first wildcard |
//! | `readlink`, `readlinkat` | after the first link, of its directory, if any was reported |
//! | `closedir` | never: the library forgets the stream |
//! | `chroot` | never: our part of `LD_PRELOAD` is removed |
//! | `prctl` | never: a program that filters its own calls is left alone |
//!
//! After `chroot`, the new root may have no copy of the library, or an older C library.
//!
//! # Why this way
//!
//! * **A socket for each message.** A program that closes all descriptors would close one that is
//!   kept, and its number could be the program's at the next use. While a program forks, nothing is
//!   sent, so no child gets such a descriptor either. The address is a path, so that the kernel
//!   lets no other user send to the helper. If the path does not lead to the same socket (after
//!   `chroot`, in another mount namespace, for another user), the program is left alone.
//! * **A descriptor, not a path.** It means the same to the helper, whatever the program's root,
//!   working directory or mounts are, and it cannot be replaced by a link. It is opened for the
//!   message, so it shares no locks with the program's own.
//! * **A shared page for the way back.** The helper writes there on which devices calls are fast.
//!   Programs look before they report. The page is a file that programs map read-only, before
//!   `main`.
//! * **No stat functions.** The library does not see whether the program asks for attributes at
//!   all: that would cost each call.
//!
//! # Limits
//!
//! * A C library for 64-bit programs. 32-bit programs started under it run unboosted, and glibc's
//!   dynamic linker says so on stderr. The same happens to programs in a mount namespace without
//!   the library's file. If the file is visible beside an older C library than it was built for,
//!   the dynamic linker ends the program.
//! * A program that filters its system calls without `prctl` is not noticed: with `seccomp` itself,
//!   which root may call.
//! * Programs see `LD_PRELOAD` and `PANDO_BOOST` in their environment.
//! * `glob` calls the newest version of the function. Programs linked before glibc 2.27 get its
//!   answer to dangling links.
//! * A program that reads links only by `__readlink_chk` is not noticed to read links. Fortified
//!   programs call it where they know the size of their buffer. A program is also not noticed if it
//!   puts each target in the place of its link's path.
//! * If more than 256 directory streams are open at once (or eight whose addresses collide), the
//!   others are not boosted.
//! * Programs that call the kernel themselves (Go, static ones, `getdents64`) do not call the
//!   library.
#![forbid(unsafe_code)]

/// The shared library. Empty if there was no C compiler for it at build time.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libpando_boost.so"));

#[cfg(test)]
mod tests {
    #[test]
    fn library_was_built_and_is_small() {
        assert!(super::LIBRARY.starts_with(b"\x7fELF"), "no C compiler, or no headers: see the warning of the build");
        assert!(super::LIBRARY.len() < 32 << 10, "{} bytes", super::LIBRARY.len());
    }

    /// musl's dynamic linker ends a program over a missing name: glibc's linker, and the functions
    /// of fortified calls.
    #[test]
    fn library_needs_no_symbol_that_only_glibc_has() {
        let names = |name: &[u8]| super::LIBRARY.windows(name.len()).any(|at| at == name);
        for name in ["ld-linux", "__tls_get_addr", "_chk\0"] {
            assert!(!names(name.as_bytes()), "{name}");
        }
    }
}
