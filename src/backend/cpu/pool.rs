//! Threads that wait for work: a run is cut into pieces, and whoever is free takes the next one.
//!
//! Between two products lie microseconds, so a thread that found nothing spins for a while and only then sleeps. Taking part is voluntary:
//! the caller takes pieces too and ends when all are done, so a thread that sleeps, or that the system put aside, delays nobody. Who
//! computes a piece changes no bit, because a piece never depends on another.
//!
//! In a browser a thread is a Web Worker, which the host starts: it comes in with a [`Seat`].

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// More threads than this are never made: the count of those at work has eight bits.
pub const MOST: usize = 64;

/// How often a thread looks for work before it sleeps: some tens of microseconds. In wasm a look has no pause in it.
const LOOKS: u32 = if cfg!(target_arch = "wasm32") { 50_000 } else { 4_000 };

/// How long a thread of the host's sleeps before it goes back to the host: a worker that never returns to its event loop can't be ended at once.
const PATIENCE: Duration = Duration::from_millis(50);

/// The bits of `Shared::state`: how many threads are in the run, whether it is open, and its number.
const COUNT: u32 = 0xff;
const OPEN: u32 = 0x100;
const NUMBER: u32 = 0x200;

/// A run: lives on the caller's stack until nobody is in it any more.
struct Job<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    next: AtomicUsize,
    pieces: usize,
}

impl Job<'_> {
    /// Takes pieces until there are none. A panic ends the run for all.
    fn help(&self) -> Result<(), Box<dyn Any + Send>> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let piece = self.next.fetch_add(1, Ordering::Relaxed);
                if piece >= self.pieces {
                    break;
                }
                (self.work)(piece);
            }
        }));
        if result.is_err() {
            self.next.store(self.pieces, Ordering::Relaxed);
        }
        result
    }
}

/// What caller and threads share.
struct Shared {
    /// Number, openness and head count of the run, in one word so that nobody enters a run that is closed.
    state: AtomicU32,
    /// The run that is open. Written while `state` is closed and empty, read by those who are counted in it.
    job: UnsafeCell<*const Job<'static>>,
    /// Threads that sleep, and whether the caller does.
    sleepers: AtomicU32,
    caller_sleeps: AtomicBool,
    /// The pool is gone.
    over: AtomicBool,
    /// A thread came to its end inside a run (in wasm, where a panic can't be caught).
    broken: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    lock: Mutex<()>,
    wake: Condvar,
    done: Condvar,
}

// SAFETY: `job` is the only field that is not Sync by itself. The caller writes it while the run is closed and nobody is counted in it, and
// publishes it by the Release that opens the run; a thread reads it only after the Acquire that counted it into the open run.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is only followed under the rule above, and what it points to is Sync.
unsafe impl Send for Shared {}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner) // nothing under these locks can be left half done
}

impl Shared {
    /// Spins, then sleeps, until `state` shows an open run other than `seen`; counts the thread in and gives the run's number. None where the
    /// pool is gone, or where it slept for as long as its patience lasts.
    fn enter(&self, seen: u32, patience: Option<Duration>) -> Option<u32> {
        let mut looks = 0;
        loop {
            if self.over.load(Ordering::Acquire) {
                return None;
            }
            let state = self.state.load(Ordering::SeqCst);
            if self.is_new(state, seen) {
                if self.state.compare_exchange_weak(state, state + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    return Some(state / NUMBER);
                }
                continue;
            }
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            looks = 0;
            // Whoever opens a run looks at `sleepers` afterwards; we count ourselves before we look at the run once more. One of us sees the other.
            let guard = locked(&self.lock);
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            let nothing = || !self.over.load(Ordering::SeqCst) && !self.is_new(self.state.load(Ordering::SeqCst), seen);
            let mut tired = false;
            if nothing() {
                match patience {
                    None => drop(self.wake.wait(guard)),
                    Some(patience) => tired = self.wake.wait_timeout(guard, patience).is_ok_and(|(_, timeout)| timeout.timed_out()),
                }
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            if tired && nothing() {
                return None;
            }
        }
    }

    fn is_new(&self, state: u32, seen: u32) -> bool {
        state & OPEN != 0 && state / NUMBER != seen
    }

    /// The life of a thread, or a part of it: until the patience is at its end.
    fn serve(&self, patience: Option<Duration>) {
        let mut seen = u32::MAX; // no number of a run: those have fewer bits
        while let Some(number) = self.enter(seen, patience) {
            seen = number;
            // SAFETY: this thread is counted in the run, and the caller keeps the job alive until the count is zero.
            let result = unsafe { (**self.job.get()).help() };
            if let Err(panic) = result {
                locked(&self.panic).get_or_insert(panic);
            }
            self.leave();
        }
    }

    fn leave(&self) {
        let before = self.state.fetch_sub(1, Ordering::SeqCst);
        if before & COUNT == 1 && self.caller_sleeps.load(Ordering::SeqCst) {
            drop(locked(&self.lock));
            self.done.notify_all();
        }
    }

    /// Closes the run and waits until nobody is in it.
    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::SeqCst);
        let busy = || self.state.load(Ordering::SeqCst) & COUNT != 0 && !self.broken.load(Ordering::SeqCst);
        let mut looks = 0;
        while busy() {
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            let guard = locked(&self.lock);
            self.caller_sleeps.store(true, Ordering::SeqCst);
            drop(self.done.wait_while(guard, |_: &mut ()| busy()));
            self.caller_sleeps.store(false, Ordering::SeqCst);
        }
        assert!(!self.broken.load(Ordering::SeqCst), "a thread of the pool came to its end");
    }

    fn call(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(locked(&self.lock)); // who is between the last look and the sleep has the lock
            self.wake.notify_all();
        }
    }
}

/// A pool of threads, the caller being one of them.
pub struct Pool {
    shared: Arc<Shared>,
    threads: usize,
    #[cfg(not(target_arch = "wasm32"))]
    handles: Vec<std::thread::JoinHandle<()>>,
    /// Not Sync: two runs at once, or one inside another, can't be written.
    alone: PhantomData<Cell<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads).finish()
    }
}

impl Pool {
    /// A pool of so many threads, at least 1 and at most 64; fewer where the system gives no more. In wasm they must still take their
    /// [`Seat`]s; until then the caller does all the work.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            state: AtomicU32::new(0),
            job: UnsafeCell::new(std::ptr::null()),
            sleepers: AtomicU32::new(0),
            caller_sleeps: AtomicBool::new(false),
            over: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            panic: Mutex::new(None),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            done: Condvar::new(),
        });
        let threads = threads.clamp(1, MOST);
        #[cfg(not(target_arch = "wasm32"))]
        {
            let spawn = |i: usize| {
                let shared = shared.clone();
                std::thread::Builder::new().name(format!("rillm-{i}")).spawn(move || shared.serve(None)).ok()
            };
            let handles: Vec<_> = (1..threads).map_while(spawn).collect();
            Self { threads: handles.len() + 1, shared, handles, alone: PhantomData }
        }
        #[cfg(target_arch = "wasm32")]
        Self { threads: if cfg!(target_feature = "atomics") { threads } else { 1 }, shared, alone: PhantomData }
    }

    /// How many threads compute, the caller included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// A place for a thread that the host has started.
    pub fn seat(&self) -> Seat {
        Seat(self.shared.clone())
    }

    /// Calls `work` with every number below `pieces`, each exactly once, on whatever thread; returns when all are done. A panic in one of them
    /// comes out here.
    pub fn run(&self, pieces: usize, work: impl Fn(usize) + Sync) {
        if self.threads == 1 || pieces < 2 {
            return (0..pieces).for_each(work);
        }
        let job = Job { work: &work, next: AtomicUsize::new(0), pieces };
        let shared = &*self.shared;
        // SAFETY: the run before is closed and empty (`close`), and this thread alone opens runs (`Pool` is not Sync), so nobody reads `job`
        // now. The pointer's lifetime is extended; what it points to lives until `close` below has seen that nobody is in the run any more,
        // and no panic leaves this function before that.
        unsafe { *shared.job.get() = std::ptr::from_ref(&job).cast() };
        let number = (shared.state.load(Ordering::SeqCst) / NUMBER).wrapping_add(1);
        shared.state.store(number.wrapping_mul(NUMBER) | OPEN, Ordering::SeqCst);
        shared.call();
        let mine = job.help();
        shared.close();
        let theirs = locked(&shared.panic).take();
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        drop(locked(&self.shared.lock));
        self.shared.wake.notify_all();
        #[cfg(not(target_arch = "wasm32"))]
        for handle in self.handles.drain(..) {
            let _ = handle.join(); // its panics were carried to the caller already
        }
    }
}

/// A place in a pool, for a thread that the host has started.
pub struct Seat(Arc<Shared>);

impl Seat {
    /// Works for the pool until that is dropped, or until there was nothing to do for a while: then the host calls again, when there may be.
    pub fn serve(&self) {
        self.0.serve(Some(PATIENCE));
    }

    /// Says that the thread in this seat came to its end: a run that counts on it panics instead of waiting for ever.
    pub fn abandon(&self) {
        self.0.broken.store(true, Ordering::SeqCst);
        drop(locked(&self.0.lock));
        self.0.done.notify_all();
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for run in 0..3000 {
                let pieces = run % 40;
                let done: Vec<AtomicU32> = (0..pieces).map(|_| AtomicU32::new(0)).collect();
                pool.run(pieces, |i| _ = done[i].fetch_add(1, Ordering::Relaxed));
                assert!(done.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{threads} threads, {pieces} pieces");
            }
        }
    }

    #[test]
    fn threads_that_sleep_are_woken() {
        let pool = Pool::new(3);
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(3));
            let seen = Mutex::new(std::collections::HashSet::new());
            // long pieces: nobody is left out
            pool.run(3, |_| {
                locked(&seen).insert(std::thread::current().id());
                let start = std::time::Instant::now();
                while locked(&seen).len() < 3 && start.elapsed().as_secs() < 10 {
                    std::thread::yield_now();
                }
            });
            assert_eq!(locked(&seen).len(), 3);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            for bad in [0, 7, 63] {
                let caught = catch_unwind(AssertUnwindSafe(|| pool.run(64, |i| assert!(i != bad, "piece {i}"))));
                let message = caught.unwrap_err().downcast::<String>().unwrap();
                assert_eq!(*message, format!("piece {bad}"));
            }
            let sum = AtomicUsize::new(0);
            pool.run(10, |i| _ = sum.fetch_add(i, Ordering::Relaxed));
            assert_eq!(sum.into_inner(), 45);
        }
    }

    #[test]
    fn a_thread_may_come_late_and_leaves_with_the_pool() {
        let pool = Pool::new(2);
        let seat = pool.seat();
        let start = std::time::Instant::now();
        seat.serve(); // nothing to do
        assert!(start.elapsed() >= PATIENCE);
        let late = std::thread::spawn(move || (0..3).for_each(|_| seat.serve()));
        let sum = AtomicUsize::new(0);
        (0..1000).for_each(|_| pool.run(8, |i| _ = sum.fetch_add(i, Ordering::Relaxed)));
        drop(pool);
        late.join().unwrap();
        assert_eq!(sum.into_inner(), 28_000);
    }

    #[test]
    fn a_thread_that_ended_inside_a_run_is_no_reason_to_wait() {
        let pool = Pool::new(2);
        let seat = pool.seat();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.shared.state.store(1, Ordering::SeqCst); // as if it were still in there
            std::thread::scope(|scope| {
                scope.spawn(|| seat.abandon());
                pool.shared.close();
            });
        }));
        assert!(caught.is_err());
    }
}
