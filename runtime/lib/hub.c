// SPDX-License-Identifier: Apache-2.0
/*
 * hub.c - models of the Hugging Face cache, by name
 *
 * The cache has a folder models--ORG--NAME for each model.  refs/main in it
 * holds the revision of the branch, and snapshots/REVISION is a model folder.
 * Nothing is downloaded here, and nothing is written.
 *
 * Neither a name nor the contents of refs/main may lead out of the cache.
 * Links inside a snapshot lead to blobs/ beside it, and are followed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "runtime/lib/folder.h"
#include "runtime/lib/hub.h"

#define REVISION_MAX	128u	/* bytes of refs/main */

static bool is_alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	       (c >= 'A' && c <= 'Z');
}

/* Length of the part of a name at @p, 0: it is none. */
static size_t part_len(const char *p)
{
	size_t n = 0;

	if (!is_alnum(*p))
		return 0;
	while (is_alnum(p[n]) || p[n] == '.' || p[n] == '-' || p[n] == '_')
		n++;
	return n;
}

bool hub_name(const char *text, char *name)
{
	const bool marked = !strncmp(text, "hf:", 3);
	const char *p = text + (marked ? 3 : 0);
	size_t n = part_len(p), more = 0;

	if (p[n] == '/') {
		more = part_len(p + n + 1);
		if (!more)
			return false;
		more++;
	}
	if (!n || p[n + more] || (!more && !marked) ||
	    n + more >= HUB_NAME_MAX)
		return false;
	strcpy(name, p);
	return true;
}

int hub_cache(char *dir, size_t size)
{
	static const struct {
		const char	*variable;
		const char	*below;
	} places[] = {
		{ "HF_HUB_CACHE", "" },
		{ "HF_HOME", "/hub" },
		{ "XDG_CACHE_HOME", "/huggingface/hub" },
		{ "HOME", "/.cache/huggingface/hub" },
	};
	const char *value;
	u32 i;
	int n;

	for (i = 0; i < ARRAY_SIZE(places); i++) {
		value = getenv(places[i].variable);
		if (!value || !*value)
			continue;
		n = snprintf(dir, size, "%s%s", value, places[i].below);
		return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
	}
	return -ENOENT;
}

/* Read the revision at @path; @rev has REVISION_MAX bytes. */
static int read_revision(const char *path, char *rev)
{
	char *text;
	size_t len;
	int ret;

	ret = folder_read(path, REVISION_MAX - 1, &text, &len);
	if (ret)
		return ret == -EFBIG ? -EINVAL : ret;
	text[strcspn(text, "\r\n")] = '\0';
	len = part_len(text);
	ret = len && !text[len] ? 0 : -EINVAL;
	if (!ret)
		strcpy(rev, text);
	free(text);
	return ret;
}

int hub_find(const char *name, char *dir, size_t size)
{
	char path[4096], rev[REVISION_MAX];
	const char *slash = strchr(name, '/');
	const int org = slash ? (int)(slash - name) : 0;
	size_t used;
	struct stat st;
	int ret;

	ret = hub_cache(path, sizeof(path));
	if (ret)
		return ret;
	used = strlen(path);
	snprintf(path + used, sizeof(path) - used, "/models--%.*s%s%s", org,
		 name, slash ? "--" : "", slash ? slash + 1 : name);
	if ((size_t)snprintf(dir, size, "%s/refs/main", path) >= size)
		return -ENAMETOOLONG;
	ret = read_revision(dir, rev);
	if (ret)
		return ret == -ENOTDIR ? -ENOENT : ret;
	if ((size_t)snprintf(dir, size, "%s/snapshots/%s", path, rev) >= size)
		return -ENAMETOOLONG;
	if (stat(dir, &st))
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOENT;
}
