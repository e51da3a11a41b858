/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unroll.h - unroll a loop, but not with sanitizers
 *
 * With a check at each access, unrolled loops take GCC and clang minutes.
 */
#ifndef KERNELS_CPU_UNROLL_H
#define KERNELS_CPU_UNROLL_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KERN_SANITIZED
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define KERN_SANITIZED
#endif

#define KERN_PRAGMA(text)	_Pragma(#text)
#ifdef KERN_SANITIZED
#define KERN_UNROLL(n)
#else
#define KERN_UNROLL(n)		KERN_PRAGMA(GCC unroll n)
#endif

#endif /* KERNELS_CPU_UNROLL_H */
