/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap_scenes.h - a fake kvmm with a real swapd, scene by scene
 */
#ifndef TESTS_SWAP_SCENES_H
#define TESTS_SWAP_SCENES_H

#include "tests/swapd_client.h"

#define SCENE_OPTION	"--scene"
#define SCENE_AREA	"SCENE_AREA"	/* environment: device used as the area */

/*
 * Results of a storm: deaths, requests; of these in limbo at a death; their
 * host and area slots that were used again and watched; requests that ended by
 * hold's record of a shared transfer, and all that shared one.
 */
#define STORM_TALLY_HEAD "storm: "
#define STORM_TALLY	STORM_TALLY_HEAD "%u kills %u requests %u limbo %u hosts %u slots %u shared %u merged"

/*
 * Reads among writes: their number, median and 99th percentile in microseconds,
 * KiB/s in all, depth in the end, times that it was lowered.
 */
#define DEPTH_TALLY_HEAD "depth: "
#define DEPTH_TALLY	DEPTH_TALLY_HEAD "%u reads %u p50 %u p99 %u rate %u limit %u lowered"

/* Faults of a disk that lies, and their results. */
#define FAULTS_TALLY_HEAD "faults: "
#define FAULTS_TALLY	FAULTS_TALLY_HEAD "%llu done %u requests %u right %u bad %u failed %u again %u deaths"

/* A scene with one area. */
struct scene {
	struct swapc	c;
	const char	*dir;
	u32		engine;		/* engine asked for */
	u32		n;		/* number for the scene */
	u64		rng;
	int		area_fd;
	int		raw_fd;		/* the area's file, bypassing swapd */
	u64		area_bytes;
	struct swapd_answer area;
	u32		nr_done;
	s32		last;		/* status of the last one */
};

/* Run the scene that argv names: SCENE_OPTION NAME DIR ENGINE N SEED. */
int scene_main(int argc, char **argv);

/* ---- for the files of scenes ---- */

u32 scene_random(struct scene *s, u32 n);
u64 scene_word(u64 seed, u64 i);
/* Payloads derived from a number. */
void scene_fill(u8 *payload, u32 len, u64 seed);
bool scene_is(const u8 *payload, u32 len, u64 seed);
/* Open a file in the directory as an operator's tool would. */
int scene_file(struct scene *s, const char *name, int flags);
/* Start swapd, with area 0 of @area_bytes. */
void scene_open(struct scene *s, u32 entries, u32 depth, u64 pool_bytes,
		u64 area_bytes);
/* Request of a complete slot; its identity comes from @seed. */
struct swapd_req scene_req(const struct scene *s, u32 op, u64 host_off,
			   u64 slot_off, u32 len, u64 seed, u64 generation);
/* Send one request and wait.  Return: its status. */
int scene_do(struct scene *s, const struct swapd_req *req);
/* A condition that must hold. */
#define scene_check(cond, ...)						\
do {									\
	if (!(cond))							\
		sc_die(__VA_ARGS__);					\
} while (0)

void scene_roundtrip(struct scene *s);
void scene_damage(struct scene *s);
void scene_refused(struct scene *s);
bool scene_area_again(struct scene *s);
void scene_seam(struct scene *s);
void scene_areas(struct scene *s);
void scene_full(struct scene *s);
void scene_holes(struct scene *s);
void scene_device(struct scene *s);
void scene_del(struct scene *s);
void scene_storm(struct scene *s);
void scene_reborn(struct scene *s);
void scene_ended(struct scene *s);
void scene_deaf(struct scene *s);
void scene_slow(struct scene *s);
void scene_depth(struct scene *s);
void scene_faults(struct scene *s);

#endif /* TESTS_SWAP_SCENES_H */
