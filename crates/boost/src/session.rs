//! A helper for the programs that are started with its environment.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::Arc,
    thread::JoinHandle,
};

use crate::{
    board::Board,
    helper::{self, Helper, Options},
    library,
    posts::Posts,
    schedule::Totals,
};

/// Receives posts of programs that were started with [`environment`](Self::environment), and asks
/// ahead for them, until it is finished.
#[derive(Debug)]
pub struct Session {
    helper: Arc<Helper>,
    posts: Arc<Posts>,
    listener: Option<JoinHandle<()>>,
    library: PathBuf,
}

impl Session {
    /// Puts the library in place and begins to listen.
    ///
    /// # Errors
    /// There is no directory for the library (the error says which were tried), or no socket or
    /// thread.
    pub fn start(options: Options) -> io::Result<Self> {
        let (library, (board, posts)) = library::place(|directory| {
            let board = Board::create(directory)?;
            let posts = Posts::listen(board.socket())?;
            board.show()?;
            Ok((board, posts))
        })?;
        let (helper, posts) = (Helper::new(options, Some(board)), Arc::new(posts));
        let listener = helper::spawn("boost-posts", {
            let (helper, posts) = (Arc::clone(&helper), Arc::clone(&posts));
            move || {
                while let Some(post) = posts.next() {
                    helper.reported(post, false);
                }
            }
        })?;
        Ok(Self { helper, posts, listener: Some(listener), library })
    }

    /// The variables for a program's environment. `preload` is the `LD_PRELOAD` so far. It stays
    /// before the library, or already contains it, if `pando` itself was started with such an
    /// environment.
    pub fn environment(&self, preload: Option<&OsStr>) -> [(&'static str, OsString); 2] {
        let mut libraries = preload.filter(|preload| !preload.is_empty()).map(OsStr::to_owned).unwrap_or_default();
        let ours = self.library.as_os_str();
        if !libraries.as_bytes().split(|byte| b": ".contains(byte)).any(|library| library == ours.as_bytes()) {
            if !libraries.is_empty() {
                libraries.push(":");
            }
            libraries.push(ours);
        }
        let board = self.helper.board().expect("made at the start");
        [("LD_PRELOAD", libraries), ("PANDO_BOOST", board.path().into())]
    }

    /// Ends it. Programs that are still running continue unboosted.
    pub fn finish(mut self) -> Totals {
        self.end()
    }

    fn end(&mut self) -> Totals {
        self.posts.stop();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        // Threads may be in a long call and share the board, so it is shut down explicitly.
        self.helper.board().expect("made at the start").shut_down();
        self.helper.stop()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
