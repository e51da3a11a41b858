// SPDX-License-Identifier: Apache-2.0
/*
 * swap_areas.c - files and devices that are areas, and others that are refused
 *
 * A refused area leaves its file unchanged.
 */
#include <sys/file.h>
#include <sys/resource.h>

#include "tests/integration/swap_scenes.h"

/* Add area 1; the answer must be @want, with @word in its text. */
static void area_want(struct scene *s, int fd, u64 bytes, u32 flags,
		      const u8 *uuid, int want, const char *word)
{
	struct swapd_answer a;
	int got = sc_area_add(&s->c, 1, fd, bytes, flags, uuid, &a);

	scene_check(got == want, "%d (%s) instead of %d (%s)", got, a.text,
		    want, word);
	scene_check(strstr(a.text, word), "'%s' does not say '%s'", a.text,
		    word);
	if (!got)
		scene_check(!sc_area_del(&s->c, 1, &a), "del: %s", a.text);
}

static void refused_kinds(struct scene *s)
{
	struct swapd_msg m = { .op = SWAPD_AREA_ADD, .area = 1 };
	struct swapd_answer a;
	int p[2], fd;

	scene_check(sc_control(&s->c, &m, -1, &a) == -EBADF, "no file: %s",
		    a.text);
	m.area = SWAPD_AREAS;
	scene_check(sc_control(&s->c, &m, -1, &a) == -EINVAL, "index: %s",
		    a.text);
	m.area = 1;
	m.op = 77;
	scene_check(sc_control(&s->c, &m, -1, &a) == -EINVAL, "op: %s", a.text);
	scene_check(!pipe2(p, O_CLOEXEC), "pipe");
	area_want(s, p[1], 4u << 20, 0, NULL, -EINVAL, "neither");
	close(p[0]);
	close(p[1]);
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	area_want(s, fd, 4u << 20, 0, NULL, -EINVAL, "neither");
	close(fd);
	fd = scene_file(s, "new", O_RDONLY | O_CREAT);
	area_want(s, fd, 4u << 20, 0, NULL, -EACCES, "not open for writing");
	close(fd);
	fd = scene_file(s, "new", O_RDWR | O_APPEND);
	area_want(s, fd, 4u << 20, 0, NULL, -EINVAL, "open for appending");
	close(fd);
}

static void refused_sizes(struct scene *s)
{
	int fd = scene_file(s, "new", O_RDWR | O_CREAT);
	struct stat st;

	area_want(s, fd, 0, 0, NULL, -EINVAL, "too few");
	area_want(s, fd, 4095, 0, NULL, -EINVAL, "multiple");
	area_want(s, fd, SWAPD_RESERVED_BYTES, 0, NULL, -EINVAL, "too few");
	area_want(s, fd, UINT64_MAX - 4095, 0, NULL, -EINVAL, "no size");
	area_want(s, fd, 1ull << 61, 0, NULL, -EFBIG, "larger than a file");
	scene_check(!fstat(fd, &st) && st.st_size == 0,
		    "a refused file has %lld bytes", (long long)st.st_size);
	area_want(s, fd, 4u << 20, 4, NULL, -EINVAL, "unknown flags");
	area_want(s, fd, 4u << 20, 0, NULL, 0, "");
	/* With its current size. */
	area_want(s, fd, 0, 0, NULL, 0, "");
	close(fd);
}

static void refused_contents(struct scene *s)
{
	int fd = scene_file(s, "letters", O_RDWR | O_CREAT);
	char text[] = "dear diary", back[sizeof(text)] = "";
	struct stat st;

	scene_check(pwrite(fd, text, sizeof(text), 5000) == sizeof(text),
		    "write");
	area_want(s, fd, 4u << 20, 0, NULL, -EEXIST, "force");
	scene_check(!fstat(fd, &st) && st.st_size == 5000 + sizeof(text),
		    "the file is longer");
	close(fd);
	fd = scene_file(s, "letters", O_RDWR);
	scene_check(pread(fd, back, sizeof(back), 5000) == sizeof(back) &&
		    !memcmp(text, back, sizeof(back)), "the file was changed");
	area_want(s, fd, 4u << 20, SWAPD_AREA_FORCE, NULL, 0, "");
	/* Now it is an area, and may be added again. */
	area_want(s, fd, 4u << 20, 0, NULL, 0, "");
	close(fd);
}

static void refused_used(struct scene *s)
{
	int fd = scene_file(s, "area", O_RDWR), p[2];
	struct swapd_answer a;
	pid_t pid;
	char c;

	/* The same file by another path, and by the same descriptor. */
	area_want(s, fd, 8u << 20, 0, NULL, -EBUSY, "area 0 already");
	area_want(s, s->area_fd, 8u << 20, 0, NULL, -EBUSY, "area 0 already");
	close(fd);
	scene_check(sc_area_add(&s->c, 0, s->area_fd, 0, 0, NULL, &a) == -EEXIST,
		    "index 0 twice: %s", a.text);
	/* Another daemon uses it. */
	scene_check(!pipe2(p, O_CLOEXEC), "pipe");
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fd = scene_file(s, "new", O_RDWR);
		if (flock(fd, LOCK_EX) || write(p[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	scene_check(read(p[0], &c, 1) == 1, "the other one");
	fd = scene_file(s, "new", O_RDWR);
	area_want(s, fd, 4u << 20, 0, NULL, -EBUSY, "another daemon");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	area_want(s, fd, 4u << 20, 0, NULL, 0, "");
	close(fd);
}

static void refused_kept(struct scene *s)
{
	int fd = scene_file(s, "kept", O_RDWR | O_CREAT), raw;
	struct swapd_answer a;
	u8 uuid[SWAPD_UUID_LEN], junk[16] = "damaged";

	area_want(s, fd, 0, 0, s->area.uuid, -ESTALE, "superblock");
	scene_check(!sc_area_add(&s->c, 1, fd, 4u << 20, 0, NULL, &a),
		    "%s", a.text);
	memcpy(uuid, a.uuid, sizeof(uuid));
	scene_check(!sc_area_del(&s->c, 1, &a), "%s", a.text);
	area_want(s, fd, 0, 0, uuid, 0, "");
	area_want(s, fd, 4u << 20, 0, uuid, 0, "");
	area_want(s, fd, 8u << 20, 0, uuid, -ESTALE, "not the area");
	area_want(s, fd, 4u << 20, 0, s->area.uuid, -ESTALE, "not the area");
	raw = scene_file(s, "kept", O_RDWR);
	scene_check(!ftruncate(raw, 3u << 20), "cut");
	area_want(s, fd, 4u << 20, 0, uuid, -ESTALE, "was cut");
	scene_check(!ftruncate(raw, 4u << 20), "cut");
	area_want(s, fd, 4u << 20, 0, uuid, 0, "");
	scene_check(pwrite(raw, junk, sizeof(junk), 100) == sizeof(junk) &&
		    !fdatasync(raw), "damage");
	area_want(s, fd, 4u << 20, 0, uuid, -EBADMSG, "damaged");
	close(raw);
	close(fd);
}

void scene_areas(struct scene *s)
{
	scene_open(s, 8, 8, 1u << 20, 8u << 20);
	refused_kinds(s);
	refused_sizes(s);
	refused_contents(s);
	refused_used(s);
	refused_kept(s);
}

/*
 * A disk without room: "small" is a directory on a small file system, or the
 * limit on the size of files is low.  The file must not be longer afterwards.
 */
void scene_full(struct scene *s)
{
	struct swapd_answer a;
	struct rlimit lim;
	struct stat st;
	int fd, err;

	scene_open(s, 8, 8, 1u << 20, 4u << 20);
	fd = scene_file(s, s->n ? "small/area" : "big", O_RDWR | O_CREAT);
	err = sc_area_add(&s->c, 1, fd, 64u << 20, 0, NULL, &a);
	fprintf(stderr, "full: %s\n", a.text);
	if (s->n)
		scene_check(err == -ENOSPC && strstr(a.text, "needs 64M"),
			    "%d: %s", err, a.text);
	else
		scene_check(err == -EFBIG && !getrlimit(RLIMIT_FSIZE, &lim) &&
			    strstr(a.text, "larger than a file"),
			    "%d: %s", err, a.text);
	scene_check(!fstat(fd, &st) && st.st_size == 0, "left with %lld bytes",
		    (long long)st.st_size);
	err = sc_area_add(&s->c, 1, fd, 4u << 20, 0, NULL, &a);
	scene_check(!err, "smaller: %s", a.text);
}

/*
 * The same with a file that has its size and holes.  Some file systems write
 * into holes before they report a full disk: these bytes stay, and the disk is
 * full.
 */
void scene_holes(struct scene *s)
{
	const u64 bytes = 64u << 20;
	struct swapd_answer a;
	struct stat st, was;
	int fd, err;

	scene_open(s, 8, 8, 1u << 20, 4u << 20);
	fd = scene_file(s, "mnt/area", O_RDWR | O_CREAT);
	scene_check(!ftruncate(fd, (off_t)bytes) && !fstat(fd, &was), "file");
	err = sc_area_add(&s->c, 1, fd, 0, 0, NULL, &a);
	fprintf(stderr, "holes: %s\n", a.text);
	scene_check(err == -ENOSPC && strstr(a.text, "needs 64M"), "%d: %s",
		    err, a.text);
	scene_check(!fstat(fd, &st) && (u64)st.st_size == bytes,
		    "left with %lld bytes", (long long)st.st_size);
	scene_check(st.st_blocks == was.st_blocks, "left with %lld blocks",
		    (long long)st.st_blocks);
	scene_check(!ftruncate(fd, 4 << 20), "cut");
	err = sc_area_add(&s->c, 1, fd, 0, 0, NULL, &a);
	scene_check(!err, "smaller: %s", a.text);
}

/*
 * A block device, its path in the environment.  @n 0: free; 1: mounted; 2:
 * below a loop device that another process has opened exclusively.
 */
void scene_device(struct scene *s)
{
	const char *path = getenv("SCENE_DEVICE");
	/* Like kvctl. */
	int fd = open(path ? path : "", O_RDWR | O_CLOEXEC |
		      (s->n == 1 ? 0 : O_EXCL));
	struct swapd_answer a;
	int other;
	struct swapd_req r;

	scene_open(s, 8, 8, 1u << 20, 0);
	scene_check(fd >= 0, "%s: %s", path, strerror(errno));
	if (s->n == 1) {
		area_want(s, fd, 0, 0, NULL, -EBUSY, "mounted on");
		return;
	}
	other = open(path, O_RDONLY | O_CLOEXEC);
	area_want(s, other, 0, 0, NULL, -EBUSY, "has it exclusively");
	close(other);
	area_want(s, fd, 1ull << 40, 0, NULL, -ENOSPC, "smaller --size");
	scene_check(!sc_area_add(&s->c, 0, fd, 0, 0, NULL, &s->area), "%s",
		    s->area.text);
	scene_check(s->area.flags & SWAPD_AREA_DEVICE, "no device");
	scene_check(open(path, O_RDWR | O_EXCL | O_CLOEXEC) < 0 &&
		    errno == EBUSY, "others may still take it");
	r = scene_req(s, SWAPD_WRITE, 0, s->area.usable_bytes - (64u << 10),
		      64u << 10, 3, 1);
	scene_check(!scene_do(s, &r), "write: %s", strerror(-s->last));
	r.op = SWAPD_READ;
	scene_check(!scene_do(s, &r), "read: %s", strerror(-s->last));
	scene_check(!sc_area_del(&s->c, 0, &a), "%s", a.text);
}
