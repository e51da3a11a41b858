// SPDX-License-Identifier: Apache-2.0
/*
 * area_opt.c - the values of --area, and the file of a swap area
 *
 * The path is absolute, because kvmm-hold may be started in any folder.  A comma ends
 * it, so a path with a comma cannot be written.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/area_opt.h>

static const struct kv_opt key_table[] = {
#define x(...) OPT_ENTRY(struct area_keys, __VA_ARGS__)
	AREA_KEYS(x)
#undef x
};

int area_opt_parse(struct area_opt *a, const char *spec, char *why, size_t len)
{
	const size_t n = strcspn(spec, ",");
	char keys[256], text[192];
	int err;

	if (*spec != '/' || n >= sizeof(a->path)) {
		snprintf(why, len, "--area: '%.*s' is no absolute path: write /DIR/FILE or /dev/DEVICE, then keys, as /srv/kvmm.swap,size=8G,priority=1",
			 (int)min(n, (size_t)80), spec);
		return -EINVAL;
	}
	if (spec[n - 1] == '/') {
		snprintf(why, len, "--area: %.*s is a directory: write /DIR/FILE or /dev/DEVICE",
			 (int)min(n, (size_t)80), spec);
		return -EINVAL;
	}
	memcpy(a->path, spec, n);
	a->path[n] = '\0';
	if ((size_t)snprintf(keys, sizeof(keys), "%s",
			     spec[n] ? spec + n + 1 : "") >= sizeof(keys)) {
		snprintf(why, len, "--area %.80s: more than %zu bytes of keys: give size= and priority= once",
			 a->path, sizeof(keys) - 1);
		return -EINVAL;
	}
	err = kv_opts_parse_keys(key_table, ARRAY_SIZE(key_table), &a->keys,
				 keys, text, sizeof(text));
	if (err)
		snprintf(why, len, "--area %.80s: %s; keys are size= and priority=",
			 a->path, text);
	return err;
}

void area_opt_help(FILE *out)
{
	char line[256];
	u32 i;

	fputs("\nKeys of --area:\n", out);
	for (i = 0; i < ARRAY_SIZE(key_table); i++) {
		snprintf(line, sizeof(line), "%s (default %s)",
			 key_table[i].help, key_table[i].def);
		kv_opts_help_entry("", key_table[i].name, key_table[i].meta,
				   line, out);
	}
}

/* ---- the file ---- */

/*
 * Open a block device exclusively: the descriptor keeps other programs away as long
 * as the daemon has it.  If another program uses the device, it is opened for
 * reading only, and the daemon's answer names that program.
 */
static int file_open(const char *path)
{
	const int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	struct stat st;
	int fd;

	if (stat(path, &st) || !S_ISBLK(st.st_mode))
		return open(path, O_RDWR | flags);
	/* O_EXCL without O_CREAT means exclusive use, of a block device only. */
	fd = open(path, O_RDWR | O_EXCL | flags);
	if (fd < 0 && errno == EBUSY)
		fd = open(path, O_RDONLY | flags);
	return fd;
}

static int refuse_open(const char *path, int err, char *why, size_t len)
{
	if (err == -EEXIST)
		snprintf(why, len, "%s: is a link to nothing: remove it, or name the file",
			 path);
	else if (err == -ENOENT)
		snprintf(why, len, "%s: no such file: give --size to have it made",
			 path);
	else if (err == -EISDIR)
		snprintf(why, len, "%s: is a directory: name a file or a block device",
			 path);
	else
		snprintf(why, len, "%s: cannot be opened for writing: %s", path,
			 strerror(-err));
	return err;
}

/* Check the opened file before the daemon is asked. */
static int judge_file(const char *path, int fd, u64 size, char *why, size_t len)
{
	struct stat st;

	if (fstat(fd, &st)) {
		snprintf(why, len, "%s: %s", path, strerror(errno));
		return -EIO;
	}
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
		snprintf(why, len, "%s: is neither a file nor a block device: name one",
			 path);
		return -EINVAL;
	}
	if (S_ISREG(st.st_mode) && !st.st_size && !size) {
		snprintf(why, len, "%s: is empty: give --size", path);
		return -EINVAL;
	}
	return 0;
}

int area_file_open(const char *path, u64 size, bool *made, char *why, size_t len)
{
	int fd = file_open(path), err;

	*made = false;
	if (fd < 0 && errno == ENOENT && size) {
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		*made = fd >= 0;
	}
	if (fd < 0)
		return refuse_open(path, -errno, why, len);
	err = judge_file(path, fd, size, why, len);
	if (!err)
		return fd;
	close(fd);
	return err;
}
