/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - named points where a test can make things go wrong
 *
 *	KVMM_FAULT=segment_create		every time
 *	KVMM_FAULT=segment_create:3		the third time only
 *	KVMM_FAULT=extent_create:1,mm_die:5	two points
 *
 * The crash points of the core are points too, as crash_NAME: there the daemon
 * dies in the middle of an event, in its first life only.
 *
 * The code at a point decides what goes wrong: most points return the error of
 * the system call beside them, those named die end the process as a signal would,
 * those named stall wait.
 *
 * Points exist in test builds only: KVMM_TEST_FAULTS is defined for the objects of
 * tests and of the programs in build/faults.  Programs that are installed have no
 * point, and do not read KVMM_FAULT.
 */
#ifndef KVMM_FAULT_H
#define KVMM_FAULT_H

#include <kvmm/crash.h>
#include <kvmm/types.h>

#define KV_FAULTS(x)							\
	x(segment_create,	"making a client's segments: ENOMEM")	\
	x(extent_create,	"making an extent: ENOMEM")		\
	x(pool_lost,		"making an extent of gpu0: its device fails, and its content is lost") \
	x(pool1_lost,		"making an extent of gpu1: its device fails, and its content is lost") \
	x(extent_stall,		"making an extent takes 3 seconds")	\
	x(extent_revoke,	"taking an extent's memory back from its clients: EBUSY") \
	x(extent_map,		"mapping an extent for the copier: ENOMEM") \
	x(extent_send,		"sending extents: EAGAIN")		\
	x(pidfd_open,		"getting the peer's pidfd: ESRCH")	\
	x(peer_pidfd,		"SO_PEERPIDFD: ENOPROTOOPT, as on old kernels") \
	x(socket_listen,	"making a socket: EACCES")		\
	x(thread_create,	"starting a thread: EAGAIN")		\
	x(host_huge,		"taking huge pages for the host pool: ENOMEM") \
	x(host_thp,		"making ordinary pages of the host pool huge: refused") \
	x(host_fill,		"filling a piece of the host pool: ENOMEM") \
	x(host_slow,		"filling a piece of the host pool takes 100 ms more") \
	x(host_lock,		"locking the host pool: refused")	\
	x(copy_out_eio,		"copying a block to the host pool: EIO") \
	x(copy_in_eio,		"copying a block from the host pool: EIO") \
	x(copy_move_eio,	"copying a block inside the device: EIO") \
	x(copy_delay,		"a copy between the pools takes 20 ms more") \
	x(device_busy,		"at adoption nothing proves that the device is quiet") \
	x(events_full,		"a change of a cached block finds no room in the ring of events") \
	x(events_stall,		"the publisher takes no events out of the ring") \
	x(mm_die,		"the daemon dies before a request")	\
	x(mm_die_commit,	"the daemon dies after a request took effect, before its completion") \
	x(mm_die_publish,	"the daemon dies after a request took effect, before its completion is shown") \
	x(adopt_die,		"the daemon dies after adopting an arena") \
	x(adopt_die_copied,	"the first daemon that adopts dies with a copy of the arena that kvmm-hold does not have yet") \
	x(deposit_client,	"the record of a client does not come to kvmm-hold") \
	x(resume_die,		"the daemon dies after resuming a client, before its answer") \
	x(control_die,		"the daemon dies after an attach, before its answer") \
	x(forbidden_call, "at an attach the daemon makes a system call that it may not") \
	x(hold_fork,		"starting a child: EAGAIN")		\
	x(hold_ring,		"making swapd's io_uring: EPERM, as in containers") \
	x(swapd_register,	"registering the host pool: ENOMEM")	\
	x(swapd_late,		"an area has waited too long for a swapd, from the start") \
	x(swapd_die_taken,	"swapd dies after taking a request off the ring") \
	x(swapd_die_queued,	"swapd dies with requests prepared, before the kernel has them") \
	x(swapd_die_submitted,	"swapd dies after giving requests to the kernel") \
	x(swapd_die_published,	"swapd dies after publishing a completion")

enum kv_fault {
#define x(name, text) KV_FAULT_##name,
	KV_FAULTS(x)
#undef x
	KV_FAULT_crash_first,
	NR_KV_FAULTS = KV_FAULT_crash_first + NR_CORE_CRASH_POINTS
};

#ifdef KVMM_TEST_FAULTS

extern bool kv_fault_armed;

/* The part of kv_fault() that is not inline. */
bool kv_fault_slow(enum kv_fault point);

/* kv_fault() - is the fault of @point due, at this passing? */
static inline bool kv_fault(enum kv_fault point)
{
	return kv_fault_armed && kv_fault_slow(point);
}

/* kv_fault_die() - end as by SIGKILL, if the fault of @point is due */
void kv_fault_die(enum kv_fault point);

/* kv_fault_crash_none() - no crash point is armed any more */
void kv_fault_crash_none(void);

/**
 * kv_fault_init() - arm points, before threads exist
 * @spec: value of KVMM_FAULT, or NULL: arm none
 * @text: @len bytes for one line that names the fault in @spec
 *
 * Return: 0 or -EINVAL.
 */
int __must_check kv_fault_init(const char *spec, char *text, size_t len);

/* kv_fault_env() - kv_fault_init() with KVMM_FAULT of the environment */
int __must_check kv_fault_env(char *text, size_t len);

/* Name and text of a point, for lists; NULL past the end. */
const char *kv_fault_name(u32 point);
const char *kv_fault_text(u32 point);

#else

static inline bool kv_fault(enum kv_fault point)
{
	return false;
}

static inline void kv_fault_die(enum kv_fault point)
{
}

static inline void kv_fault_crash_none(void)
{
}

static inline int __must_check kv_fault_env(char *text, size_t len)
{
	return 0;
}

#endif

#endif /* KVMM_FAULT_H */
