//! The library that `pando boost` puts into programs with `LD_PRELOAD`, as bytes.
//!
//! It is C, since its whole business is the C library's interface: variadic functions, `<fts.h>`, `<ftw.h>`, control
//! messages. The build script compiles it with the compiler driver that links Rust programs too, and embeds it here; so
//! `cargo build` and `cargo install` need nothing more than they need anyway, and there is no file to lose.
//!
//! # What it does to a program
//!
//! Before a directory is read, it sends one datagram to the helper: a descriptor of the directory, how many names the
//! program has got so far, and where it reads next. Nothing comes back. The functions it stands before:
//!
//! | functions | when the helper is told |
//! | --- | --- |
//! | `readdir`, `readdir64`, `readdir_r`, `readdir64_r` | at the first name, and every 1024 names |
//! | `scandir`, `scandirat` and their 64-bit names | before the call |
//! | `fts_read`, `fts_children` and their 64-bit names | before a directory is descended into |
//! | `ftw`, `nftw` and their 64-bit names | after the program's function has seen a directory |
//! | `glob`, `glob64` | before the call, of the directory before the first wildcard |
//! | `readlink`, `readlinkat` | after the first link that was read, if something was told before: of the directory it is in |
//! | `closedir` | not at all: what was noted about the stream is forgotten |
//! | `chroot` | not at all: `LD_PRELOAD` loses our part, as the new root may have no copy of the library, or an older C library |
//! | `prctl` | not at all: a program that limits its own system calls is left alone from then on |
//!
//! # Why this way
//!
//! * **A socket for each message.** A descriptor that is kept would be closed by programs that close all, and the number
//!   could be theirs when we next use it. While a program forks nothing is told, so that no child gets one either. Its address is a path, so that the kernel lets
//!   nobody else send to the helper; where it does not lead to the same socket (after `chroot`, in another mount name
//!   space, for another user), the program is left alone.
//! * **A descriptor, not a path.** It means the same to the helper whatever the program's root, working directory or
//!   mounts are, and nobody can put a link in its place. It is opened for the message: the program's locks are its own.
//! * **A shared page for the way back.** The helper notes there on which devices calls are fast; programs look before
//!   they tell. The page is a file that programs map read-only, before `main`.
//! * **No stat functions.** Whether the program asks for attributes at all is not watched: it would cost each call.
//!
//! # Limits
//!
//! * A C library for 64-bit programs. 32-bit programs started under it run unboosted, and glibc's dynamic linker says so
//!   on stderr. The same happens to programs in a mount name space where the file of the library is not to be seen. Where it
//!   is seen beside an older C library than it was built for, the dynamic linker ends the program.
//! * A program that limits its system calls without `prctl` is not noticed: `seccomp` itself, which root may call.
//! * Programs see `LD_PRELOAD` and `PANDO_BOOST` in their environment.
//! * `glob` calls the newest version of the function: programs linked before glibc 2.27 get its answer to dangling links.
//! * A program that reads links by `__readlink_chk` alone, which fortified ones call where they know the size of their buffer,
//!   is not noticed to read links. Nor is one that has each target put in the place of its link's path.
//! * More than 256 directory streams open at once (or eight whose addresses collide): the rest is not boosted.
//! * Programs that ask the kernel themselves (Go, static ones, `getdents64`) pass by it.
#![forbid(unsafe_code)]

/// The shared library. Empty if there was no C compiler for it when this was built.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libpando_boost.so"));

#[cfg(test)]
mod tests {
    #[test]
    fn the_library_was_built_and_is_small() {
        assert!(super::LIBRARY.starts_with(b"\x7fELF"), "no C compiler, or no headers: see the warning of the build");
        assert!(super::LIBRARY.len() < 32 << 10, "{} bytes", super::LIBRARY.len());
    }

    /// musl's dynamic linker ends a program over a name that is not there: glibc's linker, and what fortified calls become.
    #[test]
    fn the_library_wants_nothing_that_only_glibc_has() {
        let names = |name: &[u8]| super::LIBRARY.windows(name.len()).any(|at| at == name);
        for name in ["ld-linux", "__tls_get_addr", "_chk\0"] {
            assert!(!names(name.as_bytes()), "{name}");
        }
    }
}
