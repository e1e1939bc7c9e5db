"""Where the time of some steps goes: recorded while training runs, put into trees and tables, merged over workers."""
