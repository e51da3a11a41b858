// SPDX-License-Identifier: Apache-2.0
/*
 * area.c - files and devices that hold slots
 *
 * An area is judged before it is used, because a mistake here destroys data of
 * others.  It must be a regular file or a block device, open for reading and
 * writing, without another user, and hold nothing but zeros or an old area,
 * unless --force is given.  Other users are found thus:
 *
 *   another daemon   flock on the descriptor that kvmm sent.  The lock belongs
 *                    to the open file, so it outlives this process in kvmm,
 *                    in hold, and in transfers that still run.
 *   a mounted disk   mountinfo, /proc/swaps, the device's holders; and kvctl
 *                    opened it exclusively, which keeps others away as long as
 *                    a process has the descriptor.  If that fails, kvctl opens
 *                    it for reading alone, and swapd reports the user here.
 *
 * A file gets all its room at once, so that a full disk is known now and not in
 * the middle of a swap-out.
 *
 * Requests that use an area are counted: a request counts itself first and then
 * reads the state; the control thread changes the state first and then reads the
 * count.  Both are sequentially consistent, so one of them sees the other.
 *
 * Context: control thread, but area_get() and area_put().
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/opts.h>

#include "swapd/daemon.h"
#include "swapd/inuse.h"
#include "swapd/super.h"

#define AREA_MIN	(SWAPD_RESERVED_BYTES + (64u << 10))
#define PATH_LEN	192
#define LOCK_NAP_MS	20
#define LOCK_TRIES	50

/**
 * struct opening - an area that is being judged
 * @old_bytes: of the file before swapd changed it
 */
struct opening {
	const struct swapd_msg	*msg;
	struct swapd_answer	*ans;
	struct stat		st;
	int			fd;
	u64			bytes;
	u64			old_bytes;
	char			path[PATH_LEN];
};

__printf(3, 4)
static int refuse(struct opening *o, int err, const char *fmt, ...)
{
	const size_t room = sizeof(o->ans->text);
	int n = snprintf(o->ans->text, room, "%s: ", o->path);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(o->ans->text + n, room - (size_t)n, fmt, ap);
	va_end(ap);
	o->ans->status = err;
	return err;
}

__printf(2, 3)
static void remark(struct opening *o, const char *fmt, ...)
{
	const size_t room = sizeof(o->ans->text), used = strlen(o->ans->text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(o->ans->text + used, room - used, fmt, ap);
	va_end(ap);
}

static void find_path(struct opening *o)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", o->fd);
	n = readlink(link, o->path, sizeof(o->path) - 1);
	if (n <= 0)
		n = snprintf(o->path, sizeof(o->path), "descriptor %d", o->fd);
	o->path[n] = '\0';
}

/* ---- other users of the file ---- */

static int check_twice(struct swapd *s, struct opening *o)
{
	const bool blk = S_ISBLK(o->st.st_mode);
	u32 i;

	for (i = 0; i < SWAPD_AREAS; i++) {
		const struct sd_area *a = &s->area[i];

		if (a->state != SD_AREA_FREE &&
		    a->dev == (blk ? o->st.st_rdev : o->st.st_dev) &&
		    a->ino == (blk ? 0 : o->st.st_ino))
			return refuse(o, -EBUSY, "it is area %u already: see kvctl cat swaps", i);
	}
	return 0;
}

static int check_device(struct opening *o)
{
	char who[128];

	if (device_in_use(o->st.st_rdev, who, sizeof(who)))
		return refuse(o, -EBUSY, "it is in use: %s", who);
	return 0;
}

/*
 * The kernel drops the lock of an ended daemon a little later, with its last
 * reference to the ring.
 */
static int take_lock(int fd)
{
	struct timespec nap = { .tv_nsec = LOCK_NAP_MS * 1000000l };
	int tries;

	for (tries = 0; flock(fd, LOCK_EX | LOCK_NB); tries++) {
		if (errno != EWOULDBLOCK || tries == LOCK_TRIES)
			return -1;
		nanosleep(&nap, NULL);
	}
	return 0;
}

static int check_kind(struct swapd *s, struct opening *o)
{
	int flags = fcntl(o->fd, F_GETFL);
	int err;

	if (flags < 0 || fstat(o->fd, &o->st))
		return refuse(o, -errno, "%s", strerror(errno));
	if (!S_ISREG(o->st.st_mode) && !S_ISBLK(o->st.st_mode))
		return refuse(o, -EINVAL,
			      "it is neither a file nor a block device");
	if (flags & O_APPEND)
		return refuse(o, -EINVAL,
			      "it is open for appending, so no slot could be written in its place");
	err = check_twice(s, o);
	if (!err && S_ISBLK(o->st.st_mode))
		err = check_device(o);
	if (err)
		return err;
	if (take_lock(o->fd))
		return refuse(o, errno == EWOULDBLOCK ? -EBUSY : -errno,
			      errno == EWOULDBLOCK ?
			      "another daemon uses it: choose another one" :
			      "it cannot be locked");
	if ((flags & O_ACCMODE) != O_RDWR)
		return refuse(o, S_ISBLK(o->st.st_mode) ? -EBUSY : -EACCES,
			      S_ISBLK(o->st.st_mode) ?
			      "somebody has it exclusively: choose another one" :
			      "it is not open for writing");
	/* Aligned transfers past the page cache, straight into the slots. */
	if (!(flags & O_DIRECT) && fcntl(o->fd, F_SETFL, flags | O_DIRECT)) {
		o->ans->flags |= SWAPD_AREA_BUFFERED;
		remark(o, "its file system has no O_DIRECT: slower, and through the page cache");
	}
	return 0;
}

/* ---- size and room ---- */

static int size_device(struct opening *o)
{
	u64 bytes;
	int sector;

	if (ioctl(o->fd, BLKGETSIZE64, &bytes) ||
	    ioctl(o->fd, BLKSSZGET, &sector))
		return refuse(o, -errno, "its size cannot be found: %s",
			      strerror(errno));
	if (sector > (int)SWAPD_ALIGN)
		return refuse(o, -EINVAL, "its sectors are larger than %u",
			      SWAPD_ALIGN);
	if (o->bytes > bytes)
		return refuse(o, -ENOSPC, "it has %" PRIu64 " bytes, not %"
			      PRIu64 ": give a smaller --size", bytes,
			      o->bytes);
	if (!o->bytes)
		o->bytes = bytes & ~(u64)(SWAPD_ALIGN - 1);
	o->ans->flags |= SWAPD_AREA_DEVICE;
	return 0;
}

static int no_room(struct opening *o, int err)
{
	char need[24], have[24];
	struct statvfs fs;

	if (ftruncate(o->fd, (off_t)o->old_bytes))
		pr_warn("%s: is left longer than it was: %s", o->path,
			strerror(errno));
	if (err == ENOSPC && !fstatvfs(o->fd, &fs))
		return refuse(o, -ENOSPC, "no room: it needs %s, %s are free: give a smaller --size or free some",
			      kv_format_size(o->bytes, need, sizeof(need)),
			      kv_format_size((u64)fs.f_bavail * fs.f_frsize,
					     have, sizeof(have)));
	if (err == EFBIG)
		return refuse(o, -EFBIG, "%s is larger than a file may be here (ulimit -f, or the file system)",
			      kv_format_size(o->bytes, need, sizeof(need)));
	return refuse(o, -err, "it cannot be given %s: %s",
		      kv_format_size(o->bytes, need, sizeof(need)),
		      strerror(err));
}

/*
 * If fallocate() finds the disk full, some file systems keep the blocks that it
 * allocated before.  Truncation frees those behind the old end of the file, but
 * not those in its holes.  So holes are filled only if all of them have room.
 */
static bool holes_too_large(const struct opening *o)
{
	const u64 have = (u64)o->st.st_blocks * 512;
	struct statvfs fs;

	return o->old_bytes > have && o->bytes > have &&
	       !fstatvfs(o->fd, &fs) && fs.f_blocks && fs.f_frsize &&
	       (o->bytes - have) / fs.f_frsize > fs.f_bfree;
}

static int size_file(struct opening *o)
{
	o->old_bytes = (u64)o->st.st_size;
	if (!o->bytes)
		o->bytes = o->old_bytes & ~(u64)(SWAPD_ALIGN - 1);
	if (o->bytes < AREA_MIN)
		return 0;	/* the caller refuses it */
	if (o->msg->flags & SWAPD_AREA_KEEP)
		return o->bytes <= o->old_bytes ? 0 :
			refuse(o, -ESTALE, "it was cut to %" PRIu64 " bytes",
			       o->old_bytes);
	if (holes_too_large(o))
		return no_room(o, ENOSPC);
	if (!fallocate(o->fd, 0, 0, (off_t)o->bytes))
		return 0;
	if (errno != EOPNOTSUPP)
		return no_room(o, errno);
	if (o->bytes > o->old_bytes && ftruncate(o->fd, (off_t)o->bytes))
		return no_room(o, errno);
	o->ans->flags |= SWAPD_AREA_SPARSE;
	remark(o, "its file system cannot reserve room: writes may find the disk full");
	return 0;
}

static int check_size(struct opening *o)
{
	char have[32], least[32];
	int err;

	if (!(o->msg->flags & SWAPD_AREA_KEEP))
		o->bytes = o->msg->bytes;
	if (o->bytes % SWAPD_ALIGN || o->bytes > INT64_MAX)
		return refuse(o, -EINVAL, "a size of %" PRIu64
			      " is no multiple of %u, or no size", o->bytes,
			      SWAPD_ALIGN);
	err = S_ISBLK(o->st.st_mode) ? size_device(o) : size_file(o);
	if (err)
		return err;
	if (o->bytes < AREA_MIN)
		return refuse(o, -EINVAL, "%s are too few: an area needs at least %s: give a larger --size",
			      kv_format_size(o->bytes, have, sizeof(have)),
			      kv_format_size(AREA_MIN, least, sizeof(least)));
	return 0;
}

/* ---- contents ---- */

static bool all_zero(const u8 *p, size_t len)
{
	return !p[0] && !memcmp(p, p + 1, len - 1);
}

/* May the file be overwritten?  @buf: its reserved part. */
static int judge_foreign(struct opening *o, const u8 *buf, size_t len)
{
	const struct sd_super *sb = (const void *)buf;

	if (o->msg->flags & SWAPD_AREA_FORCE)
		return 0;
	if (sb->magic == SUPER_MAGIC || all_zero(buf, len))
		return 0;
	return refuse(o, -EEXIST, "it holds something that is no area: choose another one, or give --force");
}

static int judge_kept(struct opening *o, const struct sd_super *sb)
{
	int err = super_check(sb);

	if (err)
		return refuse(o, err == -ENOENT ? -ESTALE : err,
			      "its superblock is gone or damaged");
	if (memcmp(sb->uuid, o->msg->uuid, SWAPD_UUID_LEN) ||
	    sb->epoch != o->msg->epoch ||
	    (o->msg->bytes && sb->bytes != o->msg->bytes))
		return refuse(o, -ESTALE, "it is not the area it was");
	o->bytes = sb->bytes;
	memcpy(o->ans->uuid, sb->uuid, SWAPD_UUID_LEN);
	return 0;
}

/* Judge the contents before anything is changed. */
static int check_contents(struct opening *o)
{
	const size_t len = SWAPD_RESERVED_BYTES;
	u8 *buf = aligned_alloc(SWAPD_ALIGN, len);
	ssize_t n;
	int err;

	if (!buf)
		return refuse(o, -ENOMEM, "no memory");
	memset(buf, 0, len);
	n = pread(o->fd, buf, len, 0);
	if (n < 0)
		err = refuse(o, -errno, "it cannot be read: %s",
			     strerror(errno));
	else if (o->msg->flags & SWAPD_AREA_KEEP)
		err = judge_kept(o, (const void *)buf);
	else
		err = judge_foreign(o, buf, len);
	free(buf);
	return err;
}

static int write_super(struct opening *o)
{
	struct sd_super *sb;
	ssize_t n;
	int err;

	if (o->msg->flags & SWAPD_AREA_KEEP)
		return 0;
	sb = aligned_alloc(SWAPD_ALIGN, SUPER_BYTES);
	if (!sb)
		return refuse(o, -ENOMEM, "no memory");
	err = super_make(sb, o->bytes, o->msg->epoch);
	if (!err) {
		n = pwrite(o->fd, sb, SUPER_BYTES, 0);
		if (n != SUPER_BYTES || fdatasync(o->fd))
			err = n >= 0 && n < SUPER_BYTES ? -EIO : -errno;
	}
	memcpy(o->ans->uuid, sb->uuid, SWAPD_UUID_LEN);
	free(sb);
	return !err ? 0 : refuse(o, err, "its superblock cannot be written: %s",
				 strerror(-err));
}

/* ---- open, live, close ---- */

static void area_fill(struct sd_area *a, const struct opening *o)
{
	const bool blk = S_ISBLK(o->st.st_mode);

	a->fd = o->fd;
	a->dev = blk ? o->st.st_rdev : o->st.st_dev;
	a->ino = blk ? 0 : o->st.st_ino;
	a->usable_off = SWAPD_RESERVED_BYTES;
	a->usable_bytes = o->bytes - SWAPD_RESERVED_BYTES;
	memcpy(a->uuid, o->ans->uuid, SWAPD_UUID_LEN);
}

void area_open(struct swapd *s, const struct swapd_msg *msg, int fd,
	       struct swapd_answer *ans)
{
	struct sd_area *a = &s->area[msg->area];
	struct opening o = { .msg = msg, .ans = ans, .fd = fd };

	find_path(&o);
	if (a->state != SD_AREA_FREE) {
		refuse(&o, -EEXIST, "area %u is another one", msg->area);
		return;
	}
	if (msg->flags & ~(SWAPD_AREA_KEEP | SWAPD_AREA_FORCE)) {
		refuse(&o, -EINVAL, "unknown flags");
		return;
	}
	if (check_kind(s, &o) || check_contents(&o) || check_size(&o) ||
	    write_super(&o)) {
		memset(ans->uuid, 0, sizeof(ans->uuid));
		ans->flags = 0;
		return;
	}
	area_fill(a, &o);
	ans->usable_off = a->usable_off;
	ans->usable_bytes = a->usable_bytes;
}

void area_live(struct swapd *s, u32 area)
{
	struct sd_area *a = &s->area[area];

	pthread_mutex_lock(&s->lock);
	a->slow_told = false;
	pick_area(s, area);
	__atomic_store_n(&a->told, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&s->lock);
	/* Pairs with the load in area_get(), after which the fields are set. */
	__atomic_store_n(&a->state, SD_AREA_LIVE, __ATOMIC_SEQ_CST);
}

void area_close(struct sd_area *a)
{
	close(a->fd);
	a->fd = -1;
	a->dev = 0;
	a->ino = 0;
	__atomic_store_n(&a->state, SD_AREA_FREE, __ATOMIC_SEQ_CST);
}

bool area_get(struct swapd *s, u32 area)
{
	struct sd_area *a = &s->area[area];

	__atomic_fetch_add(&a->inflight, 1, __ATOMIC_SEQ_CST);
	/* Pairs with the stores of the state. */
	if (__atomic_load_n(&a->state, __ATOMIC_SEQ_CST) == SD_AREA_LIVE)
		return true;
	area_put(s, area);
	return false;
}

void area_put(struct swapd *s, u32 area)
{
	__atomic_fetch_sub(&s->area[area].inflight, 1, __ATOMIC_SEQ_CST);
}
