#include "tests/server/store/crash_disk.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstring>

namespace metp {

namespace {

struct OpenFile {
  sqlite3_file base;
  CrashDisk* disk;
  std::string* name;
  CrashDisk::File& file() const { return disk->files()[*name]; }
};

OpenFile* Self(sqlite3_file* file) { return reinterpret_cast<OpenFile*>(file); }

void Apply(std::string& content, const CrashDisk::Write& write) {
  const auto offset = static_cast<size_t>(write.offset);
  if (write.bytes.empty()) {
    content.resize(offset);
    return;
  }
  if (content.size() < offset + write.bytes.size()) content.resize(offset + write.bytes.size());
  content.replace(offset, write.bytes.size(), write.bytes);
}

int Change(sqlite3_file* file, CrashDisk::Write write) {
  if (!Self(file)->disk->Operation()) return SQLITE_IOERR_WRITE;
  CrashDisk::File& content = Self(file)->file();
  Apply(content.live, write);
  content.since.push_back(std::move(write));
  return SQLITE_OK;
}

int Close(sqlite3_file* file) {
  delete Self(file)->name;
  return SQLITE_OK;
}
int ReadAt(sqlite3_file* file, void* to, int bytes, sqlite3_int64 offset) {
  const std::string& live = Self(file)->file().live;
  std::memset(to, 0, static_cast<size_t>(bytes));
  const auto begin = std::min(live.size(), static_cast<size_t>(offset));
  const size_t n = std::min(live.size() - begin, static_cast<size_t>(bytes));
  std::memcpy(to, live.data() + begin, n);
  return n == static_cast<size_t>(bytes) ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}
int WriteAt(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 offset) {
  return Change(file, {offset, std::string(static_cast<const char*>(from), static_cast<size_t>(bytes))});
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) { return Change(file, {size, ""}); }
int Sync(sqlite3_file* file, int) {
  if (!Self(file)->disk->Operation()) return SQLITE_IOERR_FSYNC;
  CrashDisk::File& content = Self(file)->file();
  content.synced = content.live;
  content.since.clear();
  return SQLITE_OK;
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  *size = static_cast<sqlite3_int64>(Self(file)->file().live.size());
  return SQLITE_OK;
}
int Lock(sqlite3_file*, int) { return SQLITE_OK; }
int CheckReservedLock(sqlite3_file*, int* reserved) {
  *reserved = 0;
  return SQLITE_OK;
}
int FileControl(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
int SectorSize(sqlite3_file*) { return 512; }
int Characteristics(sqlite3_file*) { return 0; }

constexpr sqlite3_io_methods kMethods = {1,
                                         Close,
                                         ReadAt,
                                         WriteAt,
                                         Truncate,
                                         Sync,
                                         FileSize,
                                         Lock,
                                         Lock,
                                         CheckReservedLock,
                                         FileControl,
                                         SectorSize,
                                         Characteristics,
                                         nullptr,
                                         nullptr,
                                         nullptr,
                                         nullptr,
                                         nullptr,
                                         nullptr};

CrashDisk* DiskOf(sqlite3_vfs* vfs) { return static_cast<CrashDisk*>(vfs->pAppData); }
sqlite3_vfs* Usual() { return sqlite3_vfs_find("unix"); }

int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int, int* flags) {
  file->pMethods = nullptr;
  if (DiskOf(vfs)->failed()) return SQLITE_CANTOPEN;
  OpenFile* self = Self(file);
  self->disk = DiskOf(vfs);
  self->name = new std::string(name == nullptr ? "temporary" : name);
  self->disk->files()[*self->name];
  file->pMethods = &kMethods;
  if (flags != nullptr) *flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  return SQLITE_OK;
}
int Delete(sqlite3_vfs* vfs, const char* name, int) {
  if (!DiskOf(vfs)->Operation()) return SQLITE_IOERR_DELETE;
  DiskOf(vfs)->files().erase(name);
  return SQLITE_OK;
}
int Access(sqlite3_vfs* vfs, const char* name, int, int* there) {
  *there = DiskOf(vfs)->files().count(name) > 0 ? 1 : 0;
  return SQLITE_OK;
}
int FullPathname(sqlite3_vfs*, const char* name, int room, char* to) {
  sqlite3_snprintf(room, to, "%s", name);
  return SQLITE_OK;
}
int Randomness(sqlite3_vfs*, int bytes, char* to) { return Usual()->xRandomness(Usual(), bytes, to); }
int Sleep(sqlite3_vfs*, int) { return 0; }
int CurrentTime(sqlite3_vfs*, double* now) { return Usual()->xCurrentTime(Usual(), now); }
int LastError(sqlite3_vfs*, int, char*) { return 0; }

}  // namespace

struct CrashDisk::Vfs {
  std::string name;
  sqlite3_vfs vfs = {};
};

CrashDisk::CrashDisk(const std::string& name) : vfs_(new Vfs{name, {}}) {
  sqlite3_vfs& vfs = vfs_->vfs;
  vfs.iVersion = 1;
  vfs.szOsFile = sizeof(OpenFile);
  vfs.mxPathname = 256;
  vfs.zName = vfs_->name.c_str();
  vfs.pAppData = this;
  vfs.xOpen = Open;
  vfs.xDelete = Delete;
  vfs.xAccess = Access;
  vfs.xFullPathname = FullPathname;
  vfs.xRandomness = Randomness;
  vfs.xSleep = Sleep;
  vfs.xCurrentTime = CurrentTime;
  vfs.xGetLastError = LastError;
  sqlite3_vfs_register(&vfs, 0);
}

CrashDisk::~CrashDisk() {
  sqlite3_vfs_unregister(&vfs_->vfs);
  delete vfs_;
}

bool CrashDisk::Operation() {
  if (left_ > 0 && --left_ == 0) failing_ = true;
  return !failing_;
}

void CrashDisk::PowerOn(uint32_t seed) {
  std::mt19937 random(seed);
  for (auto& [name, file] : files_) {
    std::string content = file.synced;
    for (const Write& write : file.since) {
      switch (random() % 3) {
        case 0:  // never came
          break;
        case 1:
          Apply(content, write);
          break;
        case 2:  // torn: of a write its first half, of a truncation nothing
          if (write.bytes.size() > 1)
            Apply(content, {write.offset, write.bytes.substr(0, write.bytes.size() / 2)});
          break;
      }
    }
    file = {content, content, {}};
  }
  failing_ = false;
  left_ = 0;
}

}  // namespace metp
