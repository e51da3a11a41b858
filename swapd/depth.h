/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depth.h - how many transfers of an area the kernel has at once
 */
#ifndef SWAPD_DEPTH_H
#define SWAPD_DEPTH_H

#include <kvmm/types.h>

/**
 * struct sd_depth - depth of one area
 * @most, @least: bounds of @limit
 * @write_ns:  longer writes are slow, in a window without reads
 * @read_bytes: bound of @reading; 0: none
 * @limit:     writes at once
 * @moving:    reads, writes that the kernel has
 * @reading:   bytes of these reads
 * @wanted:    in this window a write had to wait for @limit
 * @since:     begin of the window
 * @nr, @bytes, @ns: of reads and writes that ended in the window; @ns as of a
 *             transfer of no length
 * @last:      time when the last transfer ended
 * @floor:     shortest time of a read
 * @floor_at:  time when @floor was measured last
 * @best:      highest rate, in bytes a millisecond; it decays slowly
 * @tried:     rate at which the limit was raised because @best was not reached
 */
struct sd_depth {
	u32	most;
	u32	least;
	u64	write_ns;
	u64	read_bytes;
	u32	limit;
	u32	moving[2];
	u64	reading;
	bool	wanted;
	u64	since;
	u32	nr[2];
	u64	bytes[2];
	u64	ns[2];
	u64	last;
	u64	floor;
	u64	floor_at;
	u64	best;
	u64	tried;
};

/* With @least not below @most the limit is constant. */
void depth_init(struct sd_depth *d, u32 least, u32 most, u64 write_ns,
		u64 read_bytes);

/* After depth_init(): take over transfers from an earlier life of the area. */
void depth_inherit(struct sd_depth *d, const struct sd_depth *before);

/* May a read go to the kernel now? */
bool depth_allows_read(const struct sd_depth *d);

/* May a write go to the kernel now?  If not, @wanted is set. */
bool depth_allows_write(struct sd_depth *d);

void depth_issued(struct sd_depth *d, bool write, u64 bytes, u64 now);

/**
 * depth_landed() - a transfer has ended
 * @ns: since it was issued
 *
 * Return: whether the limit changed.
 */
bool depth_landed(struct sd_depth *d, bool write, u64 bytes, u64 ns, u64 now);

#endif /* SWAPD_DEPTH_H */
