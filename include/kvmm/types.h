/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.h - the few words every file of kvmm uses
 *
 * Sized integers in the kernel's short spelling, and the macros that make
 * intent visible: __must_check for results that tell a failure, container_of()
 * for intrusive members.  Nothing here allocates, logs or includes anything of kvmm.
 */
#ifndef KVMM_TYPES_H
#define KVMM_TYPES_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#define __must_check	__attribute__((warn_unused_result))
#define __printf(a, b)	__attribute__((format(printf, a, b)))
#define __noreturn	__attribute__((noreturn))
#define __maybe_unused	__attribute__((unused))
#define fallthrough	__attribute__((fallthrough))

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define BIT(n)		(1u << (n))
#define BIT_ULL(n)	(1ull << (n))

#define container_of(ptr, type, member)					\
	((type *)((char *)(ptr) - offsetof(type, member)))

/* Nested uses must not shadow each other, so every use names its own copies. */
#define __pick_as(op, a, b, x, y)					\
({									\
	__typeof__(a) x = (a);						\
	__typeof__(b) y = (b);						\
	x op y ? x : y;							\
})
#define __pick_nr(op, a, b, n)	__pick_as(op, a, b, __a##n, __b##n)
#define __pick(op, a, b, n)	__pick_nr(op, a, b, n)

#define min(a, b)	__pick(<, a, b, __COUNTER__)
#define max(a, b)	__pick(>, a, b, __COUNTER__)

#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))
/* @a is a power of two. */
#define ALIGN_UP(x, a)		(((x) + (a) - 1) & ~((__typeof__(x))(a) - 1))

static inline bool is_power_of_2(u64 n)
{
	return n && !(n & (n - 1));
}

/* Smallest power of two >= @n; @n is at most 2^63. */
static inline u64 roundup_pow_of_two(u64 n)
{
	u64 p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

/* Plain shared-memory accessors: one load or store, never torn or repeated. */
#define READ_ONCE(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v)	__atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#define load_acquire(p)		__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define store_release(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define smp_mb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)

#endif /* KVMM_TYPES_H */
