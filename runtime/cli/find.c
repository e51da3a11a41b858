// SPDX-License-Identifier: Apache-2.0
/*
 * find.c - the model that an operand names
 *
 * An operand is a model folder, a GGUF file, or the name of a model in the Hugging Face
 * cache.  A folder or file comes first, except behind "hf:".  Nothing is downloaded: a message
 * names the command that does it.
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cli/cli.h"
#include "runtime/lib/gguf.h"

/* A printable copy of @text, cut to @size bytes. */
static const char *tame(const char *text, char *out, size_t size)
{
	char *p;

	snprintf(out, size, "%.*s", (int)size - 1, text);
	for (p = out; *p; p++)
		if ((u8)*p < ' ' || *p == 0x7f)
			*p = '?';
	return out;
}

static bool ends_as_gguf(const char *text)
{
	const size_t len = strlen(text);

	return len > 5 && !strcasecmp(text + len - 5, ".gguf");
}

/* Is it the name of a GGUF file, which is not there? */
static bool is_lost_file(const char *text)
{
	return ends_as_gguf(text) && strncmp(text, "hf:", 3);
}

static int no_folder(const char *text, bool is_file)
{
	char shown[128];

	tame(text, shown, sizeof(shown));
	if (!is_file && is_lost_file(text))
		pr_err("MODEL '%s': no such file: check its path", shown);
	else if (is_file)
		pr_err("MODEL '%s' is a file, not a folder, and no GGUF file: give the model folder that it lies in",
		       shown);
	else
		pr_err("MODEL '%s' is no folder and no file: give a model folder, a GGUF file, or hf:ORG/NAME, before any prompt",
		       shown);
	return EX_NOINPUT;
}

static int not_cached(const struct cli_model *m, int err)
{
	char cache[4096], shown[200];

	if (hub_cache(cache, sizeof(cache)))
		snprintf(cache, sizeof(cache), "that no variable names");
	tame(cache, shown, sizeof(shown));
	if (err == -ENOENT)
		pr_err("MODEL '%s' is neither a folder nor in the Hugging Face cache (%s): download it with `hf download %s`, or give a model folder",
		       m->name, shown, m->name);
	else
		pr_err("MODEL '%s': its entry in the Hugging Face cache (%s) cannot be read: %s: download it again with `hf download %s`",
		       m->name, shown, strerror(-err), m->name);
	return EX_NOINPUT;
}

/* The first GGUF file of a folder, by name; false: there is none. */
static bool first_gguf(const char *dir, char *name, size_t size)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	*name = '\0';
	while (d && (e = readdir(d)))
		if (ends_as_gguf(e->d_name) && strlen(e->d_name) < size &&
		    (!*name || strcmp(e->d_name, name) < 0))
			strcpy(name, e->d_name);
	if (d)
		closedir(d);
	return *name;
}

/* A folder of GGUF files is no model: which of them is meant? */
static int refuse_files(const char *dir)
{
	char name[256], path[4400], shown[2][512];

	snprintf(path, sizeof(path), "%s/config.json", dir);
	if (!access(path, F_OK) || !first_gguf(dir, name, sizeof(name)))
		return 0;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	pr_err("MODEL '%s' is a folder of GGUF files: give one of them, such as %s",
	       tame(dir, shown[0], sizeof(shown[0])),
	       tame(path, shown[1], sizeof(shown[1])));
	return EX_NOINPUT;
}

/* Take the folder or file as it is. */
static int take_folder(struct cli_model *m, const char *text)
{
	m->name[0] = '\0';
	if (strlen(text) >= sizeof(m->dir))
		return no_folder(text, false);
	strcpy(m->dir, text);
	return refuse_files(text);
}

int cli_model_find(struct cli_model *m, const char *text)
{
	const bool is_name = hub_name(text, m->name);
	const char *slash;
	struct stat st;
	int err;

	m->domain[0] = '\0';
	if (!is_name || strncmp(text, "hf:", 3)) {
		if (!stat(text, &st))
			return S_ISDIR(st.st_mode) || gguf_is_file(text) ?
			       take_folder(m, text) : no_folder(text, true);
		/* The loader reports other errors. */
		if (errno != ENOENT && errno != ENOTDIR &&
		    errno != ENAMETOOLONG)
			return take_folder(m, text);
		if (!is_name)
			return no_folder(text, false);
	}
	err = hub_find(m->name, m->dir, sizeof(m->dir));
	if (err)
		return is_lost_file(text) ? no_folder(text, false) :
					    not_cached(m, err);
	slash = strrchr(m->name, '/');
	snprintf(m->domain, sizeof(m->domain), "%.*s",
		 (int)sizeof(m->domain) - 1, slash ? slash + 1 : m->name);
	return refuse_files(m->dir);
}

const char *cli_model_domain(const struct cli_model *m, const char *given)
{
	if (given)
		return given;
	return m->domain[0] ? m->domain : NULL;
}
