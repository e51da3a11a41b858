/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvmm_objects.h - a store of objects in the memory of the daemon
 *
 * An object has a key of 32 bytes, which only the caller understands, and a fixed number of
 * bytes.  So an engine that has names of its own for the blocks of its cache needs no token
 * ids.  Objects have the domain's limits, tenants, tiers, checksums, adoption and figures:
 * to the daemon an object is a prompt of one block, and the key is the ids of the prompt.
 *
 * Bytes are written once, before the object is committed, and never change.  A caller that
 * maps the pool reads and writes them in place: nothing is copied.
 *
 * The calls belong to the thread of the attachment, as those of libkvmm.h.  An attachment
 * that is used for objects makes no other steps.
 */
#ifndef LIBKVMM_OBJECTS_H
#define LIBKVMM_OBJECTS_H

#include <libkvmm.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define KVMM_KEY_LEN		32
#define KVMM_OBJECTS_MAX	64u	/* of one call that holds objects */
#define KVMM_TIER_NONE		0xffu	/* the object is not there */

struct kvmm_key {
	u8	byte[KVMM_KEY_LEN];
};

/**
 * struct kvmm_object - an object that a call was asked for
 * @key:    its key
 * @addr:   its bytes while it is held, else NULL; on a GPU a device address, as kvmm_pool()
 * @status: 0: it is held; or why not, see the calls
 * @seq, @step, @mark: for the library
 */
struct kvmm_object {
	struct kvmm_key	key;
	void		*addr;
	s32		status;
	u32		mark;
	u64		seq;
	u64		step;
};

/**
 * kvmm_objects_layout() - the layout of a domain of objects
 * @p:     block_tokens and the groups are filled in
 * @bytes: of an object, a multiple of 4096
 *
 * The daemon rounds blocks up to kvmm_attach_rep.unit.
 *
 * Context: any; needs no attachment.
 * Return: 0; -EINVAL: no multiple of 4096, or more than 4 GiB.
 */
int __must_check kvmm_objects_layout(struct kvmm_params *p, u64 bytes);

/**
 * kvmm_objects_find() - which objects are there?
 * @keys: [@nr] any number
 * @tier: [@nr] gets KVMM_TIER_*, KVMM_TIER_NONE for an object that is not there
 *
 * Never waits for memory.  An object that is found is dropped later than others (touch).
 * It may be gone a moment later.
 *
 * Return: 0, the status of a request, or -ECONNRESET.
 */
int kvmm_objects_find(struct kvmm *k, const struct kvmm_key *keys, u32 nr, u8 *tier);

/**
 * kvmm_objects_get() - hold objects, to read them
 * @obj: [@nr] at most KVMM_OBJECTS_MAX, not held; @key of each is the caller's
 * @timeout_ns: how long to wait for content of lower tiers
 *
 * The bytes stay where they are until kvmm_objects_put() of the same array.  Hold it for a
 * short time: the daemon ends a client that holds one longer than --step-deadline-ms while
 * a sequence waits for memory.  @status of each:
 * 0; -ENOENT: it is not there; -EAGAIN: no memory, or not in time.
 *
 * Return: the number of objects that are held; -E2BIG; -EBUSY: too many arrays are held
 * (kvmm_params.max_steps); -ECONNRESET.
 */
int kvmm_objects_get(struct kvmm *k, struct kvmm_object *obj, u32 nr, s64 timeout_ns);

/**
 * kvmm_objects_create() - take memory for new objects
 * @obj: [@nr] as in kvmm_objects_get()
 * @timeout_ns: how long to wait for memory
 *
 * The caller writes the bytes of each object that is held, then calls kvmm_objects_commit().
 * @status of each: 0; -EEXIST: it is there; -EAGAIN: no memory in time; -EINVAL: the key is
 * twice in the array.
 *
 * Return: as kvmm_objects_get().
 */
int kvmm_objects_create(struct kvmm *k, struct kvmm_object *obj, u32 nr, s64 timeout_ns);

/**
 * kvmm_objects_commit() - the objects of kvmm_objects_create() are written
 *
 * Objects with @status 0 can be found from now on; set another status before the call to
 * drop one.  They are held no more.  @status of each: 0, or -ESTALE: the daemon died, and the
 * object is lost.
 *
 * Return: 0; -EBUSY: an array that was taken before is held, and nothing changed;
 * -ECONNRESET.
 */
int kvmm_objects_commit(struct kvmm *k, struct kvmm_object *obj, u32 nr);

/**
 * kvmm_objects_put() - hold objects no longer
 * @obj: the array of kvmm_objects_get(), or of a kvmm_objects_create() that is given up
 *
 * Arrays may be put in any order; their places (-EBUSY) are free when the older ones are.
 *
 * Return: 0; -ESTALE: the daemon died and gave the memory away before this call, so bytes
 * that were read may be wrong; -ECONNRESET.
 */
int kvmm_objects_put(struct kvmm *k, struct kvmm_object *obj, u32 nr);

/**
 * kvmm_objects_delete() - drop objects
 * @obj: [@nr] as in kvmm_objects_get(); @status of each: 0; -ENOENT; -EAGAIN: not now
 *
 * An object that another client holds is gone when it is held no more.
 *
 * Return: 0, -E2BIG, or -ECONNRESET.
 */
int kvmm_objects_delete(struct kvmm *k, struct kvmm_object *obj, u32 nr);

/**
 * kvmm_object_lease() - keep an object, in any tier
 *
 * As kvmm_lease().
 */
int kvmm_object_lease(struct kvmm *k, const struct kvmm_key *key, u32 ms, const char *label,
		      struct kvmm_lease_res *res);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* LIBKVMM_OBJECTS_H */
