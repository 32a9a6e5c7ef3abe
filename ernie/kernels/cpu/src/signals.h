// No signal handler may run in the middle of a oneDNN product.
//
// For want of room on the stack, its float products for AVX2 and AVX-512 move the stack pointer to a buffer on the heap, up to
// version 3.11 (oneDNN's issue 4845, mended by its pull request 4855).  The frame of a handler that runs then overwrites what
// lies below that buffer.  A handler without work to do is enough: Ctrl-C, SIGTERM, a profiler's timer.
#pragma once
#include <pthread.h>
#include <signal.h>

namespace ernie {

// While an object lives, this thread receives none of the signals that other code sends; they arrive afterwards.
class NoSignals {
public:
    NoSignals() { pthread_sigmask(SIG_BLOCK, &sent(), &before_); }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(const NoSignals&) = delete;

    // For a thread that only computes: another one of the process receives them instead.
    static void from_now_on() { pthread_sigmask(SIG_BLOCK, &sent(), nullptr); }

private:
    // All but those by which an instruction of the thread itself fails.
    static const sigset_t& sent() {
        static const sigset_t set = [] {
            sigset_t made;
            sigfillset(&made);
            for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&made, number);
            return made;
        }();
        return set;
    }
    sigset_t before_;
};

}  // namespace ernie
