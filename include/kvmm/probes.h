/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probes.h - static probes (USDT) for bpftrace, perf, gdb and SystemTap
 *
 * One list for each program.  Its documentation (Documentation/tracing.md), the
 * test of the binaries and the macros are made from it.
 *
 * A probe is a nop that a note in the binary names, behind a test of its semaphore:
 * a word that the kernel raises while the probe is traced.  So arguments may be
 * computed: they cost nothing while it is not traced.  All of them are u64.
 *
 * Names and the order of arguments stay; arguments may be added at the end.
 *
 * Without <sys/sdt.h> (Debian: systemtap-sdt-dev), or with KVMM_NO_PROBES, there
 * are no probes, and the programs are the same otherwise.
 */
#ifndef KVMM_PROBES_H
#define KVMM_PROBES_H

#include <kvmm/types.h>

#if !defined(KVMM_NO_PROBES) && defined(__has_include)
#if __has_include(<sys/sdt.h>)
#define KV_HAVE_PROBES
#endif
#endif

/*
 * Name, number of arguments, their names, the event.  A client, a seq, a domain and
 * an area have their numbers in the files of /proc (a seq has its number in the
 * client), a request has the engine's number; us are microseconds; errno is positive.
 * 4294967295 is no domain: an operator, or the end of something.
 */
#define KVMM_PROBES(x)							\
	x(wait,		5, "client seq domain errno blocks",		\
	  "the first waiting sequence finds no room for that many blocks, at each try: EAGAIN no memory, EINPROGRESS memory is being made, EALREADY blocks are being migrated, EBUSY above memory.high") \
	x(admit,	6, "client seq domain tokens cached us",	\
	  "a sequence that waited got its memory: tokens known, found in the cache, time waited") \
	x(restore,	5, "client seq domain blocks us",		\
	  "a swapped-out sequence got memory again, and its blocks are being filled") \
	x(grant,	6, "client seq domain step blocks copied",	\
	  "a step entry was granted: new blocks, tokens of a tail to be copied") \
	x(refuse,	6, "client seq domain step errno blocks",	\
	  "a step entry was refused: EAGAIN no memory, EDQUOT it can never fit, ESTALE it was preempted") \
	x(step_begin,	4, "client step entries granted",		\
	  "a step was opened")						\
	x(step_end,	4, "client step entries us",			\
	  "a step was ended: us since it was opened")		\
	x(evict,	5, "domain taker block kept used",		\
	  "a cached block of the domain was evicted for the taker: kept is 1 if a lower tier has it, blocks in use before") \
	x(steal,	4, "domain taker extent cached",		\
	  "a span of the domain that no sequence maps went to the taker: first extent, cached blocks dropped for it") \
	x(mark,		5, "client seq domain cause taker",		\
	  "a sequence is to lose its memory to the taker, at once or when its open steps end: cause is a number of the table of causes") \
	x(preempt,	6, "client seq domain cause swapped tokens",	\
	  "a sequence lost its memory: 1 swapped if it went to a lower tier, tokens that were valid") \
	x(limit,	4, "domain mark held blocks",			\
	  "a limit of the domain refused memory: 0 memory.max, 1 memory.high; blocks held, blocks asked for") \
	x(limit_reclaim, 4, "domain evicted used mark",			\
	  "the domain's own cache was evicted to keep its limit: blocks evicted, in use then, allowed") \
	x(kill,		2, "client errno",				\
	  "the process of a client is ended: ETIME a step, ETIMEDOUT after its hang-up, else an extent") \
	x(swap_submit,	5, "request area write domain bytes",		\
	  "swapd was given a slot to read, or to write")		\
	x(swap_done,	6, "request area write domain errno us",	\
	  "swapd finished the request: errno is 0 on success, us since it was given")

#define SWAPD_PROBES(x)							\
	x(submit,	5, "area write offset bytes requests",		\
	  "a transfer goes to the kernel: number of its requests")		\
	x(done,		6, "area write offset bytes errno us",		\
	  "a request is finished: errno is 0 on success, us since its transfer began")

#define KVRT_PROBES(x)							\
	x(request_queued, 5, "request tokens max_new samples flow",	\
	  "the engine has a request: tokens of its prompt, most new ones") \
	x(request_opened, 3, "request us waiting",			\
	  "the request left the queue and asks the daemon for memory: time since it was queued, requests still queued") \
	x(request_admitted, 4, "request us tokens cached",		\
	  "the request has memory: time since it was queued, tokens found in the cache") \
	x(request_scheduled, 2, "request us",				\
	  "the first step of the request begins: time since it was queued")		\
	x(first_token,	2, "request us",				\
	  "the request has its first token: time since it was queued")		\
	x(sample_done,	5, "request sample reason tokens us",		\
	  "a sample ended: 0 stop, 1 length, 2 cancelled, 3 timeout, 4 error; tokens delivered, time since the request was queued") \
	x(preempted,	4, "request sample computed tokens",		\
	  "a sequence lost its memory: tokens computed, and known; sample 4294967295: no sample yet") \
	x(restored,	4, "request sample computed tokens",		\
	  "the sequence has memory again: tokens that are there, and known")	\
	x(step_begin,	3, "step entries tokens",			\
	  "a step was granted and begins to run")			\
	x(step_end,	5, "step entries tokens us model_us",		\
	  "the step is over, except for delivering its tokens: time since step_begin, and in the model")

/* Numbers of arguments of the probes. */
enum {
#define x(name, nr, args, text) KV_PROBE_NR_kvmm_##name = nr,
	KVMM_PROBES(x)
#undef x
#define x(name, nr, args, text) KV_PROBE_NR_swapd_##name = nr,
	SWAPD_PROBES(x)
#undef x
#define x(name, nr, args, text) KV_PROBE_NR_kvrt_##name = nr,
	KVRT_PROBES(x)
#undef x
};

/* All providers, for a table of their probes. */
#define KV_PROVIDERS(x)							\
	x(kvmm, "kvmm", KVMM_PROBES)					\
	x(swapd, "swapd", SWAPD_PROBES)					\
	x(kvrt, "kvrt", KVRT_PROBES)

#define KV_PROBE_COUNT(...) KV_PROBE_COUNT_(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0)
#define KV_PROBE_COUNT_(a, b, c, d, e, f, n, ...) n

#ifdef KV_HAVE_PROBES
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

/* Define the semaphore of a probe, in one file of its program. */
#define KV_PROBE_SEMAPHORE(provider, name)				\
	volatile unsigned short provider##_##name##_semaphore		\
	__attribute__((section(".probes")))

#define x(name, nr, args, text)						\
	extern volatile unsigned short kvmm_##name##_semaphore;
KVMM_PROBES(x)
#undef x
#define x(name, nr, args, text)						\
	extern volatile unsigned short swapd_##name##_semaphore;
SWAPD_PROBES(x)
#undef x
#define x(name, nr, args, text)						\
	extern volatile unsigned short kvrt_##name##_semaphore;
KVRT_PROBES(x)
#undef x

/* Is the probe traced? */
#define KV_PROBE_ON(provider, name)					\
	__builtin_expect(provider##_##name##_semaphore, 0)

#define KV_PROBE_2(p, n, a, b)						\
	STAP_PROBE2(p, n, (u64)(a), (u64)(b))
#define KV_PROBE_3(p, n, a, b, c)					\
	STAP_PROBE3(p, n, (u64)(a), (u64)(b), (u64)(c))
#define KV_PROBE_4(p, n, a, b, c, d)					\
	STAP_PROBE4(p, n, (u64)(a), (u64)(b), (u64)(c), (u64)(d))
#define KV_PROBE_5(p, n, a, b, c, d, e)					\
	STAP_PROBE5(p, n, (u64)(a), (u64)(b), (u64)(c), (u64)(d), (u64)(e))
#define KV_PROBE_6(p, n, a, b, c, d, e, f)				\
	STAP_PROBE6(p, n, (u64)(a), (u64)(b), (u64)(c), (u64)(d), (u64)(e), (u64)(f))
#define KV_PROBE_FIRE__(nr, p, n, ...)	KV_PROBE_##nr(p, n, __VA_ARGS__)
#define KV_PROBE_FIRE_(nr, p, n, ...)	KV_PROBE_FIRE__(nr, p, n, __VA_ARGS__)
#define KV_PROBE_FIRE(p, n, ...)					\
	KV_PROBE_FIRE_(KV_PROBE_COUNT(__VA_ARGS__), p, n, __VA_ARGS__)

#else /* none */
#define KV_PROBE_SEMAPHORE(provider, name)				\
	struct kv_no_##provider##_##name
#define KV_PROBE_ON(provider, name)	0
/* The compiler checks the arguments; they are never evaluated. */
#define KV_PROBE_FIRE(p, n, ...)	((void)sizeof((u64[]){ __VA_ARGS__ }))
#endif

/**
 * KV_PROBE() - a place that can be traced
 * @provider: kvmm, swapd or kvrt
 * @name:     a probe of its list
 *
 * The arguments follow.  They are evaluated only while the probe is traced.
 */
#define KV_PROBE(provider, name, ...)					\
do {									\
	static_assert(KV_PROBE_COUNT(__VA_ARGS__) ==			\
		      KV_PROBE_NR_##provider##_##name,			\
		      "arguments of a probe");				\
	if (KV_PROBE_ON(provider, name))				\
		KV_PROBE_FIRE(provider, name, __VA_ARGS__);		\
} while (0)

#endif /* KVMM_PROBES_H */
